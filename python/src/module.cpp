// SPDX-License-Identifier: Apache-2.0
// The module gnmr._core: controller, files, formats, recipes and kernels, without torch.
#include "bind.h"

NB_MODULE(_core, module) {
  using namespace gnmr::python;
  // Python frees what modules hold in no order at its end; that is no leak that a user could mend.
  nb::set_leak_warnings(false);
  module.doc() = "GNMR's core: the controller, its files, number formats, recipes and kernels. No torch.";
  module.attr("VERSION") = GNMR_VERSION;
  bind_error(module);
  bind_options(module);        // core/options.h, io/options_json.h
  bind_types(module);          // core/types.h, io/glob.h
  bind_step(module);           // core/step.h
  bind_supervisor(module);     // run/supervisor.h
  bind_host_gate(module);      // core/host_gate.h
  bind_device_gate(module);    // kernels/signals.h
  bind_control(module);        // run/control_file.h, run/control_signals.h
  bind_trace(module);          // io/trace.h, io/units_json.h
  bind_formats(module);        // formats/cast.h
  bind_recipe(module);         // recipes/recipe.h, fp8_rule.h
  bind_host_squares(module);   // kernels/host_squares.h
  bind_clipped_norms(module);  // kernels/clipped_norms.h, kernels/device.h
  bind_fp8_product(module);    // kernels/fp8_product.h
  bind_low_layer(module);      // low/linear.h, low/operand.h, low/quantize.h, low/gemm.h
  bind_patrol(module);         // low/patrol.h
  bind_plan(module);           // lab/high_plan.h
  bind_report(module);         // report/report.h, report/explanation.h
  bind_program(module);        // apps/gnmr/commands.h
}
