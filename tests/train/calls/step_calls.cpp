// SPDX-License-Identifier: Apache-2.0
// The calls of a calm training step, in order, for count_calls.py: gnmr/train and gnmr/run are compiled with
// -finstrument-functions for this program (CMakeLists.txt), nothing else is.
//
// step_calls LAG: a line per call, its depth and the address of the function, in two steps and what is between them.
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "train/small_run.h"

namespace {

struct Call {
  int depth;
  void* function;
};

bool is_recording = false;
int depth = 0;
std::vector<Call> calls;

}  // namespace

extern "C" {
__attribute__((no_instrument_function)) void __cyg_profile_func_enter(void* function, void* /*site*/) {
  if (is_recording) calls.push_back({depth, function});
  ++depth;
}
__attribute__((no_instrument_function)) void __cyg_profile_func_exit(void* /*function*/, void* /*site*/) { --depth; }
}

int main(int count, char** arguments) {
  constexpr std::int64_t kCalmStep = 20;
  const gnmr::train::testing::SmallRuns runs;
  gnmr::run::TrainSettings settings = runs.settings("calls");
  settings.recipe = "fp8-tensorwise";
  settings.options.lag = count > 1 ? std::atoi(arguments[1]) : 0;
  gnmr::train::testing::Recorder recorder;
  recorder.after_step = [&](const gnmr::run::TrainLine& line) {
    is_recording = line.step >= kCalmStep && line.step <= kCalmStep + 2;
  };
  gnmr::nn::Collective alone;
  gnmr::train::Trainer trainer(settings, recorder, alone, {.plan_model = gnmr::train::plan_llama});
  trainer.run();
  for (const Call& call : calls) std::printf("%d %p\n", call.depth, call.function);
}
