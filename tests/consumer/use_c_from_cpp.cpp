// SPDX-License-Identifier: Apache-2.0
// A C++ program that uses the C interface of an installed gnmr.
#include <gnmr.h>

#include <memory>

int main() {
  gnmr_unit unit = GNMR_UNIT_INIT;
  unit.name = "layers.0";
  gnmr_controller* made = nullptr;
  if (gnmr_create(&unit, 1, nullptr, nullptr, &made) != GNMR_OK) return 1;
  const std::unique_ptr<gnmr_controller, decltype(&gnmr_destroy)> controller(made, &gnmr_destroy);
  const double norm = 1;
  gnmr_report report = GNMR_REPORT_INIT;
  report.norms_double = &norm;
  report.unit_count = 1;
  if (gnmr_begin(controller.get(), 0, nullptr) != GNMR_OK) return 1;
  if (gnmr_report_step(controller.get(), &report, nullptr) != GNMR_OK) return 1;
  return gnmr_decision_count(controller.get()) == 1 ? 0 : 1;
}
