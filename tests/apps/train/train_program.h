// SPDX-License-Identifier: Apache-2.0
// `gnmr train` as a process: started, watched, sent signals, waited for.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "gnmr/io/journal_reader.h"
#include "gnmr/run/metrics.h"
#include "io/temporary_folder.h"

namespace gnmr::testing {

/// How a process ended.
struct Ended {
  int status = -1;  // its exit status
  int signal = 0;   // or the signal that ended it
};

/// A running program; it does not outlive the object.
class TrainProgram {
 public:
  TrainProgram(std::vector<std::string> arguments, const std::string& log) {
    arguments.insert(arguments.begin(), {GNMR_PROGRAM, "train"});
    std::vector<char*> pointers;
    for (std::string& argument : arguments) pointers.push_back(argument.data());
    pointers.push_back(nullptr);
    process_ = ::fork();
    if (process_ == 0) {
      const int file = ::open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
      ::dup2(file, 1);
      ::dup2(file, 2);
      ::execv(pointers[0], pointers.data());
      ::_exit(127);
    }
  }
  ~TrainProgram() {
    if (process_ <= 0) return;
    send(SIGKILL);
    wait();
  }
  TrainProgram(const TrainProgram&) = delete;
  TrainProgram& operator=(const TrainProgram&) = delete;

  void send(int signal) const {
    if (process_ > 0) ::kill(process_, signal);  // 0 would be everyone in this process's group
  }

  bool running() {
    if (process_ <= 0) return false;
    int status = 0;
    if (::waitpid(process_, &status, WNOHANG) == 0) return true;
    finish(status);
    return false;
  }

  Ended wait() {
    if (process_ > 0) {
      int status = 0;
      ::waitpid(process_, &status, 0);
      finish(status);
    }
    return ended_;
  }

  /// Waits until something is so, or the program has ended; whether it is.
  template <class Condition>
  bool wait_until(Condition condition) {
    while (!condition()) {
      if (!running()) return condition();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
  }

 private:
  void finish(int status) {
    process_ = 0;
    ended_ = {WIFEXITED(status) ? WEXITSTATUS(status) : -1, WIFSIGNALED(status) ? WTERMSIG(status) : 0};
  }

  pid_t process_ = 0;
  Ended ended_;
};

/// A small model, text, and flags that use them.
class TrainFolder {
 public:
  TrainFolder() {
    test::put_file(file("config.json"), R"({"model_type":"llama","architectures":["LlamaForCausalLM"],
      "vocab_size":256,"hidden_size":32,"intermediate_size":48,"num_hidden_layers":2,"num_attention_heads":2,
      "num_key_value_heads":2,"head_dim":16,"max_position_embeddings":64,"rms_norm_eps":1e-5,"rope_theta":10000,
      "tie_word_embeddings":false,"hidden_act":"silu"})");
    std::string text;
    for (int line = 0; line < 2000; ++line) text += "line " + std::to_string(line * line % 977) + " of the text\n";
    test::put_file(file("text.txt"), text);
  }

  std::string file(const std::string& name) const { return folder_.file(name); }

  /// Flags of a run into the folder `out`, with faults and a controller that answers them.
  std::vector<std::string> flags(const std::string& out, int steps) const {
    return {"--model",
            file("config.json"),
            "--data",
            file("text.txt"),
            "--steps",
            std::to_string(steps),
            "--batch",
            "2",
            "--sequence",
            "16",
            "--threads",
            "1",
            "--eval-batches",
            "1",
            "--out",
            file(out),
            "--faults",
            "saturate",
            "overflow",
            "--fault-from",
            "8",
            "--fault-every",
            "4",
            "--warmup-samples",
            "4",
            "--lock-steps",
            "4",
            "--max-o",
            "3",
            "--common-share",
            "1",
            "--noise-factor",
            "2",
            "--warmup",
            "4"};
  }

  Ended run(const std::vector<std::string>& flags, const std::string& log = "log") const {
    return TrainProgram(flags, file(log)).wait();
  }

  std::string log(const std::string& name = "log") const { return test::content_of(file(name)); }

 private:
  test::TemporaryFolder folder_;
};

inline std::vector<std::string> with(std::vector<std::string> flags, const std::vector<std::string>& more) {
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

/// Steps that a run has told of, from the size of the file: cheap enough to ask every millisecond.
inline std::size_t lines_in(const std::string& path) {
  const std::string text = test::content_of(path);
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

/// Everything that a run measured, without times.
inline run::Metrics metrics_of(const std::string& folder) {
  run::Metrics metrics = run::read_metrics(folder + "/metrics.jsonl");
  for (run::TrainLine& line : metrics.train) line.seconds = 0;
  return metrics;
}

/// Steps and events of a journal, a line each.
inline std::vector<std::string> decisions_of(const std::string& folder) {
  std::vector<std::string> lines;
  const auto number = [](const std::optional<double>& value) { return value ? std::to_string(*value) : "none"; };
  for (const io::JournalStepEntry& entry : io::read_journal(folder + "/journal.jsonl").steps) {
    if (!entry.step) continue;
    lines.push_back(std::to_string(entry.number) + " risks " + std::to_string(entry.step->risks) + " recovered " +
                    std::to_string(entry.step->recovered) + " loss " + number(entry.step->loss));
    for (const io::JournalEvent& event : entry.events) {
      lines.push_back(std::to_string(event.step) + " " + event.unit + " " + std::string(io::to_string(event.event)) +
                      " " + number(event.ratio) + " " + number(event.severity) + " " + std::to_string(event.left));
    }
  }
  return lines;
}

}  // namespace gnmr::testing
