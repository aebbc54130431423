// SPDX-License-Identifier: Apache-2.0
// A naive second implementation of "With a gate: lag 1" of docs/algorithm.md, the gate included, written from that page
// alone: see naive_controller.h for its manners.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "naive_judge.h"

namespace gnmr::naive {

struct Plan {
  std::int64_t step = 0;
  std::int64_t batch = 0;
  std::string pass = "plain";  // or trial, replay
  std::string gate = "none";   // or trial, guard: what it may close for
  // "its plan" counts in the cap as it was made
  bool counts = false;
  bool forbidden = false;
  bool failed = false;
  // "the gate knows these as they are now"
  std::vector<bool> high;
  std::vector<bool> free;
  std::vector<bool> zero_is_no_sample;
  std::int64_t doubt = 1;
  std::vector<std::vector<float>> limits;  // of each unit and site; empty: none
  std::vector<std::size_t> measure;        // "Measuring": by the step as it begins
};

struct Settled {
  Hearing hearing;
  Ruling ruling;
  bool called = false;
};

class GatedJudge : public Judge {
 public:
  // Throws std::invalid_argument where the page says that it is an error.
  GatedJudge(std::vector<Unit> units, Options options, std::vector<double> expected, bool can_rerun);

  const Plan& plan(std::int64_t step);
  const Plan& begin(bool forbidden);
  void trial_fails();

  // Whether the gate of the step that has begun last closes; it remembers the norms or forgets them.
  bool closes(const Norms& norms, const Errors& errors);

  Settled settle(const Norms& norms, const Errors& errors, bool held);

  std::size_t waiting() const { return waiting_.size(); }
  std::int64_t next_batch() const { return next_batch_; }

 private:
  struct Waiting {
    std::int64_t batch = 0;
    std::string pass;
  };

  std::int64_t to_come(const Plan* but_for) const;
  bool rerun_may_be(const Plan* but_for) const;
  std::vector<std::vector<float>> limits(const std::string& gate) const;
  Ruling decide_without_candidates(Heard heard);

  Controller beside_;  // only its histories are used: those that the gate sees
  std::deque<Waiting> waiting_;
  std::deque<Plan> undecided_;
  std::int64_t next_batch_ = 1;
  bool called_ = false;
};

}  // namespace gnmr::naive
