// SPDX-License-Identifier: Apache-2.0
#include "abuse/kill_plan.h"

#include <signal.h>

#include "abuse/dice.h"

namespace gnmr::abuse {
namespace {

constexpr std::uint32_t kRunStream = 1;
constexpr std::uint32_t kStopStream = 2;

void add(Words& flags, const Words& more) { flags.insert(flags.end(), more.begin(), more.end()); }

void add_low_precision(Words& flags, const std::string& folder, Dice& dice) {
  // Those whose low paths have a state come first; one rounds by chance.
  const std::vector<std::string> recipes{"fp8-delayed", "fp8-delayed",    folder + "/int4-delayed.json",
                                         "int4-act",    "nvfp4-hadamard", "fp8-tensorwise"};
  add(flags, {"--recipe", dice.one_of(recipes)});
  add(flags, {"--granularity", dice.one_of<std::string>({"layer", "layer", "product", "block"})});
  if (dice.once_in(4)) add(flags, {"--save-activations", "fp8"});
  if (dice.once_in(4)) add(flags, {"--accumulate", "2"});
  if (dice.once_in(6)) add(flags, {"--recompute"});
}

void add_control(Words& flags, int lag, Dice& dice) {
  add(flags, {"--lag", std::to_string(lag), "--warmup-samples", "4", "--lock-steps", "4", "--max-o", "3",
              "--common-share", "1", "--noise-factor", "2"});
  const bool watch = dice.once_in(5);
  if (watch) add(flags, {"--controller", "watch"});
  if (watch && lag == 0 && dice.once_in(2)) add(flags, {"--rival", dice.one_of<std::string>({"zclip", "adagc"})});
  const std::string selector = dice.one_of<std::string>({"auto", "auto", "norms", "evidence"});
  add(flags, {"--selector", selector});
  if (selector != "evidence" && dice.once_in(3)) {
    const std::string guard = dice.one_of<std::string>({"skip", "replay"});
    add(flags, {"--guard", selector == "norms" ? guard : "skip"});  // beside trials a replay is an error
  }
  add(flags, {"--patrol", selector == "evidence" ? "1" : dice.one_of<std::string>({"0", "0.05", "1"})});
  for (const char* const measured : {"--evidence", "--norms", "--errors"}) {
    if (dice.once_in(2)) add(flags, {measured});
  }
}

void add_faults(Words& flags, Dice& dice) {
  if (dice.once_in(4)) return;
  const std::vector<std::string> kinds{"saturate",     "overflow",   "bit-flip",  "drift",
                                       "nan-gradient", "stuck-amax", "bad-batch", "saturate:once"};
  add(flags, {"--faults", dice.one_of(kinds), dice.one_of(kinds)});
  add(flags, {"--fault-from", "6", "--fault-every", "4", "--fault-steps", "3"});
}

}  // namespace

RunPlan make_run_plan(std::uint64_t seed, std::uint64_t number, const std::string& folder, bool two_processes) {
  Dice dice(seed, kRunStream, number);
  RunPlan plan;
  const int lag = static_cast<int>(number % 2);
  plan.processes = two_processes ? 2 : 1;
  plan.name = (two_processes ? "two processes, lag " : "lag ") + std::to_string(lag);
  const std::uint64_t steps = 20 + dice.below(30);
  plan.flags = {"--model",        folder + "/config.json",
                "--data",         folder + "/text.txt",
                "--steps",        std::to_string(steps),
                "--batch",        "2",
                "--sequence",     "16",
                "--threads",      "1",
                "--eval-batches", "1",
                "--warmup",       "4",
                "--seed",         std::to_string(number)};
  if (dice.once_in(4)) add(plan.flags, {"--init", folder + "/weights"});
  add_low_precision(plan.flags, folder, dice);
  add_control(plan.flags, lag, dice);
  add_faults(plan.flags, dice);
  add(plan.flags, {"--checkpoint-every", std::to_string(1 + dice.below(5))});
  add(plan.flags, {"--keep-checkpoints", std::to_string(dice.below(3))});
  add(plan.flags, {"--eval-every", dice.one_of<std::string>({"0", "4", "9"})});
  return plan;
}

KillPlan make_kill_plan(std::uint64_t seed, std::uint64_t number) {
  Dice dice(seed, kStopStream, number);
  KillPlan plan;
  plan.run = number % kRunPlans;
  const bool two_processes = has_two_processes(plan.run);
  const std::size_t stops = 1 + dice.below(two_processes ? 2 : 4);
  const std::vector<Moment> moments{Moment::start,   Moment::any,     Moment::line,     Moment::writing,
                                    Moment::writing, Moment::renamed, Moment::last_step};
  for (std::size_t i = 0; i < stops; ++i) {
    Stop stop;
    stop.moment = dice.one_of(moments);
    // What ends a run comes last, or there is nothing left to kill.
    if (stop.moment == Moment::last_step && i + 1 < stops) stop.moment = Moment::line;
    stop.signal = dice.one_of<int>({SIGKILL, SIGKILL, SIGKILL, SIGKILL, SIGKILL, SIGTERM, SIGINT, SIGHUP});
    stop.count = 1 + dice.below(stop.moment == Moment::line ? 10 : 3);
    stop.share = static_cast<double>(dice.below(1000)) / 1000;
    if (two_processes) stop.rank = static_cast<int>(dice.below(3)) - 1;
    plan.stops.push_back(stop);
  }
  return plan;
}

const char* text_of(Moment moment) {
  switch (moment) {
    case Moment::start:
      return "while it starts";
    case Moment::any:
      return "at any time";
    case Moment::line:
      return "after some steps";
    case Moment::writing:
      return "while a checkpoint is written";
    case Moment::renamed:
      return "after a checkpoint was written";
    case Moment::last_step:
      return "after the last step";
  }
  return "";
}

}  // namespace gnmr::abuse
