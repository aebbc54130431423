// SPDX-License-Identifier: Apache-2.0
#include <cstddef>

#include "bind.h"
#include "gnmr/core/signal_rules.h"
#include "gnmr/kernels/signals.h"
#include "gnmr/run/supervisor.h"
#include "values.h"

namespace gnmr::python {
namespace {

kernels::SignalSettings settings_of(const Controller& controller) {
  return {.rules = signal_rules(controller.options()),
          .window = static_cast<std::uint32_t>(controller.options().window),
          .alarm = {.common_share = controller.options().common_share, .selector = controller.selector()}};
}

/// `HostGate` on the current CUDA device: `kernels::UnitSignals` with the histories of a controller.
class DeviceGate {
 public:
  DeviceGate(const Controller& controller, std::uint64_t stream)
      : signals_(static_cast<std::uint32_t>(controller.units().size()), settings_of(controller)) {
    signals_.load(kernels::memory_of(controller.save(), settings_of(controller)), address(stream));
  }

  void judge(const PlanValue& plan, std::uint64_t norms, std::uint64_t sampled, std::uint64_t flags,
             std::uint64_t alarm, std::uint64_t stream) {
    signals_.observe({.norms = address<const double>(norms),
                      .sampled = address<const std::uint8_t>(sampled),
                      .flags = address<const std::uint8_t>(flags)},
                     plan.plan.hold, {.alarm = address<kernels::StepAlarm>(alarm)}, address(stream));
  }

 private:
  kernels::UnitSignals signals_;
};

}  // namespace

void bind_device_gate(nb::module_& module) {
  nb::class_<DeviceGate> gate(module, "DeviceGate",
                              "The same gate on the current CUDA device, for norms that are there; addresses are of "
                              "device memory that lives until the stream has passed.");
  gate.def(nb::new_([](const run::Supervisor& supervisor, std::uint64_t stream) {
             return DeviceGate(supervisor.controller(), stream);
           }),
           "supervisor"_a, "stream"_a,
           "It goes on with these histories: all steps so far must have been decided. Waits for the stream.")
      .def(
          "judge", &DeviceGate::judge, "plan"_a, "norms"_a, "sampled"_a, "flags"_a, "alarm"_a, "stream"_a,
          nb::call_guard<nb::gil_scoped_release>(),
          "Queues it: doubles and bytes, one per unit, the second 0 where it has no gradient; the plan's `gate_flags`; "
          "and `ALARM_BYTES` for what it comes to, with an integer at `HELD_AT` that is 0 unless the update is held.");
  gate.attr("ALARM_BYTES") = sizeof(kernels::StepAlarm);
  gate.attr("HELD_AT") = offsetof(kernels::StepAlarm, held);
}

}  // namespace gnmr::python
