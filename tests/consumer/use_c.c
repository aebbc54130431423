/* SPDX-License-Identifier: Apache-2.0 */
/* A C program that uses an installed gnmr; its argument is the path of a state file to write. */
#include <gnmr.h>
#include <stdio.h>

int main(int argc, char** argv) {
  gnmr_unit units[2] = {GNMR_UNIT_INIT, GNMR_UNIT_INIT};
  gnmr_controller* controller = NULL;
  gnmr_decision decision = GNMR_DECISION_INIT;
  float norms[2] = {1, 1};
  if (argc != 2) return 2;
  units[0].name = "layers.0";
  units[1].name = "layers.1";
  if (gnmr_create(units, 2, "{\"max_o\":1}", NULL, &controller) != GNMR_OK) {
    fprintf(stderr, "%s\n", gnmr_error_text(NULL));
    return 1;
  }
  for (int step = 0; step < 30; ++step) {
    if (step == 29) norms[1] = 50;
    gnmr_report report = GNMR_REPORT_INIT;
    report.step = step;
    report.norms_float = norms;
    report.unit_count = 2;
    if (gnmr_begin(controller, step, NULL) != GNMR_OK) return 1;
    if (gnmr_report_step(controller, &report, NULL) != GNMR_OK) return 1;
  }
  if (gnmr_get_decision(controller, &decision) != GNMR_OK || decision.recovered != 1) return 1;
  if (gnmr_save(controller, argv[1]) != GNMR_OK || gnmr_load(controller, argv[1], NULL) != GNMR_OK) return 1;
  gnmr_destroy(controller);
  return 0;
}
