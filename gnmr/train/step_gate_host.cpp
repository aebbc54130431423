// SPDX-License-Identifier: Apache-2.0
#include "gnmr/core/host_gate.h"
#include "gnmr/train/step_gate.h"

namespace gnmr::train {
namespace {

class HostStepGate : public StepGate {
 public:
  HostStepGate(AdamW& optimizer, const Controller& controller) : optimizer_(optimizer), gate_(controller) {}

  void load(const Controller& controller) override { gate_ = HostGate(controller); }

  void pass(BatchNumbers& numbers, const GateStep& step) override {
    // A controller that holds nothing plans no flags.
    const StepPlan plan{.hold = step.hold, .gate_flags = step.flags, .error_limits = step.error_limits};
    numbers.held =
        !step.flags.empty() &&
        gate_.holds(plan,
                    {.norms = numbers.norms.values, .sampled = numbers.norms.sampled, .errors = numbers.judged_errors});
    numbers.update.applied = numbers.update.applied && !numbers.held;
    if (numbers.update.applied) optimizer_.step(step.learning_rate, numbers.update.clip);
  }

 private:
  AdamW& optimizer_;
  HostGate gate_;
};

}  // namespace

std::unique_ptr<StepGate> make_host_gate(AdamW& optimizer, const Controller& controller) {
  return std::make_unique<HostStepGate>(optimizer, controller);
}

}  // namespace gnmr::train
