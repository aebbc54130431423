// SPDX-License-Identifier: Apache-2.0
#include "abuse/command.h"

#include <fmt/format.h>
#include <signal.h>

#include <filesystem>
#include <thread>

#include "io/temporary_folder.h"

namespace gnmr::abuse {
namespace {

namespace fs = std::filesystem;

/// The shell sets the limits and becomes the program: the process has the program's number.
Words in_shell(const std::string& folder, const Words& words, const Limits& limits, const Words& variables) {
  std::string script = fmt::format("cd \"$0\" && ulimit -c 0 && ulimit -t {}", limits.cpu_seconds);
  if (limits.memory_mib > 0) script += fmt::format(" && ulimit -v {}", limits.memory_mib * 1024);
  script += " && exec env \"$@\" >\"$0.out\" 2>\"$0.err\"";
  Words all{"/bin/sh", "-c", script, folder};
  all.insert(all.end(), variables.begin(), variables.end());
  all.insert(all.end(), words.begin(), words.end());
  return all;
}

}  // namespace

RunningCommand::RunningCommand(const std::string& folder, const Words& words, const Limits& limits,
                               const Words& variables)
    : folder_(folder),
      limits_(limits),
      begin_(std::chrono::steady_clock::now()),
      child_(in_shell(folder, words, limits, variables), folder + ".start") {}

bool RunningCommand::running() {
  if (end_) return false;
  end_ = child_.poll();
  if (end_) return false;
  if (std::chrono::steady_clock::now() - begin_ > limits_.wall && !timed_out_) {
    timed_out_ = true;
    child_.kill();
  }
  return true;
}

void RunningCommand::send(int signal) const {
  if (!end_ && child_.id() > 0) ::kill(child_.id(), signal);
}

lab::ChildEnd RunningCommand::wait() {
  while (running()) std::this_thread::sleep_for(std::chrono::microseconds(300));
  return *end_;
}

double RunningCommand::seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
}

std::string RunningCommand::err() const { return test::content_of(folder_ + ".err"); }
std::string RunningCommand::out() const { return test::content_of(folder_ + ".out"); }

std::string shell_line(const Words& words) {
  std::string line;
  for (const std::string& word : words) {
    const bool plain = !word.empty() && word.find_first_of(" *?'\"$&|<>;()") == std::string::npos;
    line += (line.empty() ? "" : " ") + (plain ? word : "'" + word + "'");
  }
  return line;
}

void copy_tree(const std::string& from, const std::string& to) {
  fs::create_directories(to);
  for (const fs::directory_entry& entry : fs::directory_iterator(from)) {
    const std::string target = to + "/" + entry.path().filename().string();
    if (entry.is_directory()) {
      copy_tree(entry.path().string(), target);
    } else {
      test::put_file(target, test::content_of(entry.path().string()));
    }
  }
}

}  // namespace gnmr::abuse
