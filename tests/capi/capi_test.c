/* SPDX-License-Identifier: Apache-2.0 */
/* Uses the C interface as a C program would. The only argument is a folder for files. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "gnmr.h"

static int failures = 0;

#define CHECK(condition)                                              \
  do {                                                                \
    if (!(condition)) {                                               \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
      ++failures;                                                     \
    }                                                                 \
  } while (0)

#define CHECK_OK(call) CHECK((call) == GNMR_OK)

enum { kUnits = 4 };
static const char kOptions[] =
    "{\"warmup_samples\":3,\"lock_steps\":4,\"max_o\":1,\"common_share\":1,\"cooldown_steps\":0}";

static gnmr_controller* make_controller(void) {
  static const char* const kNames[kUnits] = {"a", "b", "c", "h\xC3\xA9"};
  gnmr_unit units[kUnits];
  gnmr_controller* controller = NULL;
  for (int i = 0; i < kUnits; ++i) {
    const gnmr_unit plain = GNMR_UNIT_INIT;
    units[i] = plain;
    units[i].name = kNames[i];
    units[i].cost = i + 1;
    units[i].group = i < 2 ? "first" : NULL;
  }
  CHECK_OK(gnmr_create(units, kUnits, kOptions, NULL, &controller));
  return controller;
}

/* One step of a caller that knows norms only. */
static gnmr_status take_step(gnmr_controller* controller, int64_t step, const double* norms, const uint8_t* sampled,
                             size_t count) {
  gnmr_report report = GNMR_REPORT_INIT;
  const gnmr_status begun = gnmr_begin(controller, step, NULL);
  if (begun != GNMR_OK) return begun;
  report.step = step;
  report.norms_double = norms;
  report.sampled = sampled;
  report.unit_count = count;
  return gnmr_report_step(controller, &report, NULL);
}

static gnmr_status take_float_step(gnmr_controller* controller, int64_t step, const float* norms, size_t count) {
  gnmr_report report = GNMR_REPORT_INIT;
  const gnmr_status begun = gnmr_begin(controller, step, NULL);
  if (begun != GNMR_OK) return begun;
  report.step = step;
  report.norms_float = norms;
  report.unit_count = count;
  return gnmr_report_step(controller, &report, NULL);
}

static void warm_up(gnmr_controller* controller) {
  const double norms[kUnits] = {1, 1, 1, 1};
  for (int step = 0; step < 5; ++step) CHECK_OK(take_step(controller, step, norms, NULL, kUnits));
}

static size_t count_of(const gnmr_controller* controller, gnmr_list list) {
  size_t count = 99;
  CHECK_OK(gnmr_list_count(controller, list, &count));
  return count;
}

static void test_version(void) {
  CHECK(gnmr_api_version() ==
        GNMR_API_VERSION_MAJOR * 1000000u + GNMR_API_VERSION_MINOR * 1000u + GNMR_API_VERSION_PATCH);
}

static void test_create_errors(void) {
  gnmr_unit units[2] = {GNMR_UNIT_INIT, GNMR_UNIT_INIT};
  gnmr_controller* controller = (gnmr_controller*)&units;
  units[0].name = "a";
  units[1].name = "a";
  CHECK(gnmr_create(units, 2, NULL, NULL, &controller) == GNMR_ERROR_INPUT);
  CHECK(controller == NULL);
  CHECK(strstr(gnmr_error_text(NULL), "twice") != NULL);
  units[1].name = "\xFF";
  CHECK(gnmr_create(units, 2, NULL, NULL, &controller) == GNMR_ERROR_INPUT);
  CHECK(strstr(gnmr_error_text(NULL), "UTF-8") != NULL);
  units[1].name = NULL;
  CHECK(gnmr_create(units, 2, NULL, NULL, &controller) == GNMR_ERROR_ARGUMENT);
  units[1].name = "b";
  CHECK(gnmr_create(units, 2, "{\"taus\":1}", NULL, &controller) == GNMR_ERROR_INPUT);
  CHECK(strstr(gnmr_error_text(NULL), "taus") != NULL);
  CHECK(gnmr_create(units, 2, "{", NULL, &controller) == GNMR_ERROR_INPUT);
  units[1].cost = 0;
  CHECK(gnmr_create(units, 2, NULL, NULL, &controller) == GNMR_ERROR_INPUT);
  units[1].cost = 1;
  units[1].struct_size = 8;
  CHECK(gnmr_create(units, 2, NULL, NULL, &controller) == GNMR_ERROR_ARGUMENT);
  units[0].struct_size = 0;
  CHECK(gnmr_create(units, 2, NULL, NULL, &controller) == GNMR_ERROR_ARGUMENT);
  CHECK(gnmr_create(NULL, 2, NULL, NULL, &controller) == GNMR_ERROR_ARGUMENT);
  CHECK(gnmr_create(units, 2, NULL, NULL, NULL) == GNMR_ERROR_ARGUMENT);
  CHECK(controller == NULL);
  CHECK_OK(gnmr_create(NULL, 0, NULL, NULL, &controller));
  CHECK(gnmr_unit_count(controller) == 0);
  gnmr_destroy(controller);
}

/* What a program compiled with a later header would hand in. A member of 4 bytes is the hardest case: it must not lie
 * where an earlier struct had padding, or its size would say nothing. */
typedef struct later_unit {
  gnmr_unit known;
  int32_t weight;
} later_unit;

/* The end of the last member is the end of the struct. */
#define CHECK_NO_TAIL(type, last) CHECK(offsetof(type, last) + sizeof(((type*)NULL)->last) == sizeof(type))

/* The struct with one more member of 4 bytes behind its last one. */
#define GROWS(type) \
  struct {          \
    type known;     \
    int32_t later;  \
  }

static void test_structs_have_no_padding(void) {
  CHECK_NO_TAIL(gnmr_unit, reserved);
  CHECK_NO_TAIL(gnmr_backend, expected_errors);
  CHECK_NO_TAIL(gnmr_plan, reserved);
  CHECK_NO_TAIL(gnmr_report, reserved);
  CHECK_NO_TAIL(gnmr_outcome, called);
  CHECK_NO_TAIL(gnmr_finding, reserved);
  CHECK_NO_TAIL(gnmr_alarm, reserved);
  CHECK_NO_TAIL(gnmr_decision, reserved);
  CHECK_NO_TAIL(gnmr_signals, risk);
  CHECK_NO_TAIL(gnmr_load_report, reserved);
  CHECK(sizeof(later_unit) > sizeof(gnmr_unit) && sizeof(GROWS(gnmr_plan)) > sizeof(gnmr_plan));
  CHECK(sizeof(gnmr_backend) == sizeof(size_t) + 4 * sizeof(int32_t) + sizeof(void*));
}

/* What is reserved must be 0 where it goes in, and is 0 where it comes out. */
static void test_reserved_members(void) {
  gnmr_unit unit = GNMR_UNIT_INIT;
  gnmr_backend backend = GNMR_BACKEND_INIT;
  gnmr_report report = GNMR_REPORT_INIT;
  gnmr_plan plan = GNMR_PLAN_INIT;
  gnmr_decision decision = GNMR_DECISION_INIT;
  gnmr_alarm alarm = GNMR_ALARM_INIT;
  gnmr_controller* controller = NULL;
  const double norm = 1;
  unit.name = "a";
  unit.reserved = 1;
  CHECK(gnmr_create(&unit, 1, NULL, NULL, &controller) == GNMR_ERROR_ARGUMENT);
  unit.reserved = 0;
  backend.reserved = 1;
  CHECK(gnmr_create(&unit, 1, NULL, &backend, &controller) == GNMR_ERROR_ARGUMENT);
  backend.reserved = 0;
  CHECK_OK(gnmr_create(&unit, 1, NULL, &backend, &controller));
  plan.reserved = decision.reserved = alarm.reserved = 7;
  CHECK_OK(gnmr_begin(controller, 1, &plan));
  report.step = 1;
  report.norms_double = &norm;
  report.unit_count = 1;
  report.reserved = 1;
  CHECK(gnmr_report_step(controller, &report, NULL) == GNMR_ERROR_ARGUMENT);
  report.reserved = 0;
  CHECK_OK(gnmr_report_step(controller, &report, NULL));
  CHECK_OK(gnmr_get_decision(controller, &decision));
  CHECK_OK(gnmr_get_alarm(controller, &alarm));
  CHECK(plan.reserved == 0 && decision.reserved == 0 && alarm.reserved == 0);
  gnmr_destroy(controller);
}

static void test_structs_may_grow(void) {
  later_unit units[2] = {{GNMR_UNIT_INIT, 0}, {GNMR_UNIT_INIT, 0}};
  gnmr_controller* controller = NULL;
  GROWS(gnmr_decision) decision = {GNMR_DECISION_INIT, 77};
  GROWS(gnmr_plan) plan = {GNMR_PLAN_INIT, 77};
  GROWS(gnmr_alarm) alarm = {GNMR_ALARM_INIT, 77};
  GROWS(gnmr_report) report = {GNMR_REPORT_INIT, 0};
  gnmr_signals signals = GNMR_SIGNALS_INIT;
  const float norms[2] = {1, 2};
  units[0].known.name = "a";
  units[1].known.name = "b";
  units[0].known.struct_size = units[1].known.struct_size = sizeof(later_unit);
  CHECK_OK(gnmr_create(&units[0].known, 2, NULL, NULL, &controller));
  CHECK(strcmp(gnmr_unit_name(controller, 1), "b") == 0);
  CHECK_OK(take_float_step(controller, 9, norms, 2));
  decision.known.struct_size = sizeof(decision);
  CHECK_OK(gnmr_get_decision(controller, &decision.known));
  CHECK(decision.known.step == 9 && decision.later == 77);
  CHECK(decision.known.struct_size == sizeof(decision));
  plan.known.struct_size = sizeof(plan);
  CHECK_OK(gnmr_begin(controller, 10, &plan.known));
  CHECK(plan.known.step == 10 && plan.later == 77);
  report.known.struct_size = sizeof(report);
  report.known.step = 10;
  report.known.norms_float = norms;
  report.known.unit_count = 2;
  report.later = 1;
  CHECK(gnmr_report_step(controller, &report.known, NULL) == GNMR_ERROR_ARGUMENT);
  report.later = 0;
  CHECK_OK(gnmr_report_step(controller, &report.known, NULL));
  alarm.known.struct_size = sizeof(alarm);
  CHECK_OK(gnmr_get_alarm(controller, &alarm.known));
  CHECK(alarm.known.step == 10 && alarm.later == 77);
  /* An earlier program knew only `ratio`. */
  signals.struct_size = offsetof(gnmr_signals, delta);
  signals.ratio = signals.delta = -5;
  CHECK_OK(gnmr_get_signals(controller, 0, &signals));
  CHECK(signals.ratio == 1 && signals.delta == -5);
  signals.struct_size = 0;
  CHECK(gnmr_get_signals(controller, 0, &signals) == GNMR_ERROR_ARGUMENT);
  gnmr_destroy(controller);
  units[1].weight = 1;
  CHECK(gnmr_create(&units[0].known, 2, NULL, NULL, &controller) == GNMR_ERROR_ARGUMENT);
}

static void test_step(void) {
  gnmr_controller* controller = make_controller();
  const float spike[kUnits] = {1, 9, 8, 1};
  gnmr_alarm alarm = GNMR_ALARM_INIT;
  gnmr_decision decision = GNMR_DECISION_INIT;
  gnmr_signals signals = GNMR_SIGNALS_INIT;
  uint32_t units[kUnits] = {0};
  uint8_t mask[kUnits] = {7, 7, 7, 7};
  size_t count = 0;
  uint32_t left = 0;
  CHECK_OK(gnmr_get_decision(controller, &decision));
  CHECK(decision.recovered == 0 && decision.step == 0);
  warm_up(controller);
  CHECK_OK(take_float_step(controller, 5, spike, kUnits));
  CHECK_OK(gnmr_get_alarm(controller, &alarm));
  CHECK(alarm.step == 5 && alarm.sampled == 4 && alarm.finite == 4 && alarm.risks == 2 && alarm.common == 0);
  CHECK_OK(gnmr_get_decision(controller, &decision));
  CHECK(decision.step == 5 && decision.recovered == 1 && decision.admitted == 1 && decision.denied == 1);
  CHECK(decision.released == 0 && decision.futile == 0 && decision.recovered_cost == 2 && decision.common == 0);
  CHECK_OK(gnmr_list_copy(controller, GNMR_LIST_ADMITTED, units, kUnits, &count));
  CHECK(count == 1 && units[0] == 1);
  CHECK_OK(gnmr_list_copy(controller, GNMR_LIST_RISKS, units, kUnits, &count));
  CHECK(count == 2 && units[0] == 1 && units[1] == 2);
  CHECK(gnmr_list_copy(controller, GNMR_LIST_RISKS, units, 1, &count) == GNMR_ERROR_CAPACITY);
  CHECK(count == 2);
  CHECK(gnmr_list_copy(controller, GNMR_LIST_MEASURE + 1, units, kUnits, &count) == GNMR_ERROR_ARGUMENT);
  CHECK(gnmr_list_copy(controller, -1, units, kUnits, &count) == GNMR_ERROR_ARGUMENT);
  CHECK_OK(gnmr_recovered_mask(controller, mask, kUnits));
  CHECK(mask[0] == 0 && mask[1] == 1 && mask[2] == 0 && mask[3] == 0);
  CHECK(gnmr_recovered_mask(controller, mask, 3) == GNMR_ERROR_ARGUMENT);
  CHECK_OK(gnmr_get_signals(controller, 1, &signals));
  CHECK(fabs(signals.ratio - 9) < 1e-9 && fabs(signals.delta - 8) < 1e-9);
  CHECK(signals.sampled == 1 && signals.risk == GNMR_RISK_RISE && signals.severity > 1);
  CHECK(gnmr_get_signals(controller, kUnits, &signals) == GNMR_ERROR_ARGUMENT);
  CHECK_OK(gnmr_steps_left(controller, 1, &left));
  CHECK(left == 4);
  CHECK(gnmr_decision_count(controller) == 6);
  CHECK(strcmp(gnmr_unit_name(controller, 3), "h\xC3\xA9") == 0);
  CHECK(gnmr_unit_name(controller, kUnits) == NULL);
  CHECK(strstr(gnmr_options_json(controller), "\"lock_steps\":4") != NULL);
  gnmr_destroy(controller);
}

static void test_errors(void) {
  gnmr_controller* controller = make_controller();
  const double calm[kUnits] = {1, 1, 1, 1};
  const double negative[kUnits] = {1, -1, 1, 1};
  const double not_finite[kUnits] = {1, 1, NAN, 1};
  const float floats[kUnits] = {1, 1, 1, 1};
  const uint8_t sampled[kUnits] = {1, 0, 1, 1};
  gnmr_report report = GNMR_REPORT_INIT;
  gnmr_plan plan = GNMR_PLAN_INIT;
  gnmr_signals signals = GNMR_SIGNALS_INIT;
  uint8_t paths[kUnits] = {9, 9, 9, 9};
  uint32_t admitted = 0;
  size_t count = 0;
  CHECK(gnmr_paths(controller, paths, kUnits) == GNMR_ERROR_INPUT);
  warm_up(controller);
  CHECK(gnmr_decision_count(controller) == 5);
  report.step = 5;
  report.norms_double = calm;
  report.unit_count = kUnits;
  CHECK(gnmr_report_step(controller, &report, NULL) == GNMR_ERROR_INPUT);
  CHECK(strstr(gnmr_error_text(controller), "begin() before report()") != NULL);
  CHECK_OK(gnmr_begin(controller, 5, &plan));
  CHECK(plan.step == 5 && plan.pass == GNMR_PASS_STEP && plan.again == 0 && plan.recovered == 0);
  CHECK_OK(gnmr_paths(controller, paths, kUnits));
  CHECK(paths[0] == 0 && paths[3] == 0);
  CHECK(gnmr_paths(controller, paths, 3) == GNMR_ERROR_ARGUMENT);
  CHECK(gnmr_gate_flags(controller, paths, kUnits) == GNMR_ERROR_INPUT);
  report.unit_count = 3;
  CHECK(gnmr_report_step(controller, &report, NULL) == GNMR_ERROR_INPUT);
  CHECK(strstr(gnmr_error_text(controller), "expected 4 norms, got 3") != NULL);
  report.unit_count = kUnits;
  report.norms_double = negative;
  CHECK(gnmr_report_step(controller, &report, NULL) == GNMR_ERROR_INPUT);
  report.norms_float = floats;
  CHECK(gnmr_report_step(controller, &report, NULL) == GNMR_ERROR_ARGUMENT);
  report.norms_float = NULL;
  report.norms_double = NULL;
  CHECK(gnmr_report_step(controller, &report, NULL) == GNMR_ERROR_ARGUMENT);
  report.norms_double = calm;
  report.errors = calm;
  report.error_count = kUnits;
  CHECK(gnmr_report_step(controller, &report, NULL) == GNMR_ERROR_INPUT); /* it has no sites */
  report.errors = NULL;
  report.error_count = 0;
  report.done = GNMR_DONE_RERUN_FAILED;
  CHECK(gnmr_report_step(controller, &report, NULL) == GNMR_ERROR_INPUT);
  report.done = 3;
  CHECK(gnmr_report_step(controller, &report, NULL) == GNMR_ERROR_ARGUMENT);
  report.done = GNMR_DONE_COMPLETE;
  report.struct_size = 8;
  CHECK(gnmr_report_step(controller, &report, NULL) == GNMR_ERROR_ARGUMENT);
  report.struct_size = sizeof(report);
  CHECK(gnmr_decision_count(controller) == 5 && count_of(controller, GNMR_LIST_RECOVERED) == 0);
  report.norms_double = not_finite;
  report.sampled = sampled;
  CHECK_OK(gnmr_report_step(controller, &report, NULL));
  CHECK(count_of(controller, GNMR_LIST_ADMITTED) == 1);
  CHECK_OK(gnmr_list_copy(controller, GNMR_LIST_ADMITTED, &admitted, 1, &count));
  CHECK(count == 1 && admitted == 2);
  CHECK_OK(gnmr_get_signals(controller, 1, &signals));
  CHECK(signals.sampled == 0 && isnan(signals.ratio));
  CHECK_OK(gnmr_get_signals(controller, 2, &signals));
  CHECK(isinf(signals.ratio) && isnan(signals.delta) && signals.risk == GNMR_RISK_NON_FINITE);
  CHECK_OK(gnmr_begin(controller, 6, &plan));
  CHECK(plan.recovered == 1);
  CHECK_OK(gnmr_paths(controller, paths, kUnits));
  CHECK(paths[2] == 255 && paths[1] == 0);
  CHECK_OK(gnmr_set_mode(controller, GNMR_MODE_WATCH));
  CHECK(gnmr_set_mode(controller, 3) == GNMR_ERROR_ARGUMENT);
  CHECK_OK(take_step(controller, 7, calm, NULL, kUnits));
  CHECK_OK(gnmr_begin(controller, 8, &plan));
  CHECK_OK(gnmr_paths(controller, paths, kUnits));
  CHECK(paths[2] == 0 && count_of(controller, GNMR_LIST_RECOVERED) == 1);
  gnmr_destroy(controller);
}

/* An option that the caller names and that changes nothing is a mistake of the caller. */
static void test_options_without_effect(void) {
  const gnmr_unit unit = {sizeof(gnmr_unit), "a", 1, NULL, 0, 0};
  gnmr_backend backend = GNMR_BACKEND_INIT;
  gnmr_controller* controller = NULL;
  CHECK(gnmr_create(&unit, 1, "{\"error_factor\":3}", NULL, &controller) == GNMR_ERROR_INPUT);
  CHECK(strstr(gnmr_error_text(NULL), "error_factor") != NULL);
  CHECK(gnmr_create(&unit, 1, "{\"max_trials\":3}", NULL, &controller) == GNMR_ERROR_INPUT);
  CHECK(gnmr_create(&unit, 1, "{\"selector\":\"trial\"}", NULL, &controller) == GNMR_ERROR_INPUT);
  CHECK(strstr(gnmr_error_text(NULL), "selector") != NULL);
  CHECK(gnmr_create(&unit, 1, "{\"guard\":\"replay\"}", NULL, &controller) == GNMR_ERROR_INPUT);
  CHECK(controller == NULL);
  backend.can_rerun = 1;
  backend.sites = 2;
  CHECK_OK(
      gnmr_create(&unit, 1, "{\"error_factor\":3,\"max_trials\":3,\"selector\":\"trial\"}", &backend, &controller));
  gnmr_destroy(controller);
  backend.sites = 17;
  CHECK(gnmr_create(&unit, 1, NULL, &backend, &controller) == GNMR_ERROR_INPUT);
}

enum { kTrialUnits = 12, kSites = 2 };

static gnmr_controller* make_trial_controller(void) {
  static char names[kTrialUnits][8];
  static const double kExpected[kSites] = {0.02, 0};
  gnmr_unit units[kTrialUnits];
  gnmr_backend backend = GNMR_BACKEND_INIT;
  gnmr_controller* controller = NULL;
  for (int i = 0; i < kTrialUnits; ++i) {
    const gnmr_unit plain = GNMR_UNIT_INIT;
    snprintf(names[i], sizeof(names[i]), "u%d", i);
    units[i] = plain;
    units[i].name = names[i];
  }
  backend.can_rerun = 1;
  backend.sites = kSites;
  backend.expected_errors = kExpected;
  CHECK_OK(gnmr_create(units, kTrialUnits, "{\"warmup_samples\":3,\"max_o\":2}", &backend, &controller));
  return controller;
}

/* The norm of unit 3 rises, but the low path of unit 4 is wrong: an alarm, a trial, and its verdict. */
static void test_a_trial_finds_the_wrong_unit(const char* folder) {
  gnmr_controller* controller = make_trial_controller();
  gnmr_controller* resumed = make_trial_controller();
  double norms[kTrialUnits];
  double errors[kTrialUnits * kSites];
  double clip[kTrialUnits];
  uint8_t paths[kTrialUnits];
  uint8_t mask[kTrialUnits];
  gnmr_plan plan = GNMR_PLAN_INIT;
  gnmr_report report = GNMR_REPORT_INIT;
  gnmr_outcome outcome = GNMR_OUTCOME_INIT;
  gnmr_finding findings[2];
  gnmr_load_report loaded = GNMR_LOAD_REPORT_INIT;
  size_t count = 0;
  char path[4096];
  snprintf(path, sizeof(path), "%s/trial.gnmr", folder);
  for (int i = 0; i < kTrialUnits; ++i) norms[i] = 1;
  for (int i = 0; i < kTrialUnits * kSites; ++i) errors[i] = 0.02;
  for (int step = 1; step < 6; ++step) CHECK_OK(take_step(controller, step, norms, NULL, kTrialUnits));
  norms[3] = 9;
  report.step = 6;
  report.norms_double = norms;
  report.unit_count = kTrialUnits;
  CHECK_OK(gnmr_begin(controller, 6, &plan));
  CHECK_OK(gnmr_report_step(controller, &report, &outcome));
  CHECK(outcome.alarmed == 1 && outcome.decided == 0 && outcome.action == GNMR_ACTION_RERUN);
  CHECK(outcome.rerun == GNMR_PASS_TRIAL && outcome.verdict == GNMR_VERDICT_NONE);
  CHECK(gnmr_begin(controller, 7, NULL) == GNMR_ERROR_INPUT);
  CHECK_OK(gnmr_begin(controller, 6, &plan));
  CHECK(plan.pass == GNMR_PASS_TRIAL && plan.again == 1 && plan.batch == 6);
  CHECK_OK(gnmr_paths(controller, paths, kTrialUnits));
  for (int i = 0; i < kTrialUnits; ++i) CHECK(paths[i] == 255);
  norms[3] = 1;
  errors[4 * kSites + 1] = 0.9;
  report.errors = errors;
  report.error_count = kTrialUnits * kSites;
  CHECK_OK(gnmr_report_step(controller, &report, &outcome));
  CHECK(outcome.decided == 1 && outcome.action == GNMR_ACTION_APPLY && outcome.in_force_from == 7);
  CHECK(outcome.verdict == GNMR_VERDICT_NUMERIC && outcome.findings == 1);
  CHECK(gnmr_findings(controller, findings, 0, &count) == GNMR_ERROR_CAPACITY && count == 1);
  CHECK_OK(gnmr_findings(controller, findings, 2, &count));
  CHECK(findings[0].unit == 4 && findings[0].site == 1 && findings[0].error == 0.9 && findings[0].excess > 1);
  CHECK(findings[0].kind == GNMR_FINDING_ACUTE && findings[0].reserved == 0);
  CHECK_OK(gnmr_recovered_mask(controller, mask, kTrialUnits));
  CHECK(mask[4] == 1 && mask[3] == 0);
  CHECK_OK(gnmr_clip(controller, clip, kTrialUnits));
  CHECK(clip[0] == 1 && clip[4] == 1);
  CHECK_OK(gnmr_begin(controller, 7, &plan));
  CHECK(plan.pass == GNMR_PASS_STEP && plan.recovered == 1);
  CHECK_OK(gnmr_paths(controller, paths, kTrialUnits));
  CHECK(paths[4] == 255 && paths[3] == 0);
  CHECK_OK(gnmr_save(controller, path));
  CHECK_OK(gnmr_load(resumed, path, &loaded));
  CHECK(loaded.sites_changed == 0 && loaded.error_beta_changed == 0);
  CHECK_OK(gnmr_begin(resumed, 7, &plan));
  CHECK(plan.recovered == 1);
  /* A trial that fails is decided by what the first run showed. */
  errors[4 * kSites + 1] = 0.02;
  norms[5] = 40;
  report.step = 7;
  report.errors = NULL;
  report.error_count = 0;
  CHECK_OK(gnmr_report_step(resumed, &report, &outcome));
  CHECK(outcome.action == GNMR_ACTION_RERUN);
  report.done = GNMR_DONE_RERUN_FAILED;
  report.norms_double = NULL;
  report.unit_count = 0;
  CHECK_OK(gnmr_report_step(resumed, &report, &outcome));
  CHECK(outcome.decided == 1 && outcome.action == GNMR_ACTION_APPLY && outcome.verdict == GNMR_VERDICT_NONE);
  CHECK_OK(gnmr_recovered_mask(resumed, mask, kTrialUnits));
  CHECK(mask[4] == 1 && mask[5] == 1);
  gnmr_destroy(controller);
  gnmr_destroy(resumed);
}

static void test_save_and_load(const char* folder) {
  gnmr_controller* controller = make_controller();
  gnmr_controller* resumed = make_controller();
  const double spike[kUnits] = {1, 9, 8, 1};
  gnmr_load_report report = GNMR_LOAD_REPORT_INIT;
  gnmr_decision decision = GNMR_DECISION_INIT;
  uint8_t mask[kUnits] = {0};
  char path[4096];
  char missing[4096];
  snprintf(path, sizeof(path), "%s/state.gnmr", folder);
  snprintf(missing, sizeof(missing), "%s/none/state.gnmr", folder);
  warm_up(controller);
  CHECK_OK(take_step(controller, 5, spike, NULL, kUnits));
  CHECK_OK(gnmr_save(controller, path));
  CHECK(gnmr_save(controller, missing) == GNMR_ERROR_FILE);
  CHECK(strstr(gnmr_error_text(controller), "none") != NULL);
  CHECK(gnmr_save(controller, NULL) == GNMR_ERROR_ARGUMENT);
  CHECK(gnmr_load(resumed, missing, &report) == GNMR_ERROR_FILE);
  CHECK(gnmr_decision_count(resumed) == 0);
  CHECK_OK(gnmr_load(resumed, path, &report));
  CHECK(report.unknown_units == 0 && report.new_units == 0 && report.released_units == 0);
  CHECK(report.beta_changed == 0 && report.noise_beta_changed == 0 && report.window_changed == 0);
  CHECK(gnmr_decision_count(resumed) == 6);
  CHECK_OK(gnmr_get_decision(resumed, &decision));
  CHECK(decision.step == 5 && decision.recovered == 1 && decision.recovered_cost == 2 && decision.admitted == 0);
  CHECK_OK(gnmr_recovered_mask(resumed, mask, kUnits));
  CHECK(mask[1] == 1 && mask[2] == 0);
  for (int step = 6; step < 40; ++step) {
    const double norms[kUnits] = {1, step % 7 == 0 ? 20 : 1, 1 + 0.1 * (step % 3), step % 11 == 0 ? NAN : 1};
    CHECK_OK(take_step(controller, step, norms, NULL, kUnits));
    CHECK_OK(take_step(resumed, step, norms, NULL, kUnits));
    for (gnmr_list list = GNMR_LIST_RECOVERED; list <= GNMR_LIST_NEWLY_STANDING; ++list) {
      uint32_t left[kUnits] = {0};
      uint32_t right[kUnits] = {0};
      size_t left_count = 0;
      size_t right_count = 0;
      CHECK_OK(gnmr_list_copy(controller, list, left, kUnits, &left_count));
      CHECK_OK(gnmr_list_copy(resumed, list, right, kUnits, &right_count));
      CHECK(left_count == right_count && memcmp(left, right, sizeof(left)) == 0);
    }
  }
  CHECK_OK(gnmr_load(resumed, path, NULL));
  gnmr_destroy(controller);
  gnmr_destroy(resumed);
}

/* The step is a label: what a controller decides goes by the order of the calls. */
static void test_steps_are_labels(void) {
  enum { kCalls = 14 };
  /* Ascending, all the same, descending and with gaps. */
  gnmr_controller* controllers[4];
  for (int i = 0; i < 4; ++i) controllers[i] = make_controller();
  for (int call = 0; call < kCalls; ++call) {
    const int64_t steps[4] = {call, 7, -call, 1000 * call};
    const double norms[kUnits] = {1, call == 5 ? 9 : 1, call == 6 ? 9 : 1, 1};
    for (int i = 0; i < 4; ++i) {
      gnmr_decision decision = GNMR_DECISION_INIT;
      gnmr_decision first = GNMR_DECISION_INIT;
      CHECK_OK(take_step(controllers[i], steps[i], norms, NULL, kUnits));
      CHECK_OK(gnmr_get_decision(controllers[i], &decision));
      CHECK_OK(gnmr_get_decision(controllers[0], &first));
      CHECK(decision.step == steps[i]);
      CHECK(decision.recovered == first.recovered && decision.admitted == first.admitted);
      CHECK(decision.denied == first.denied && decision.released == first.released);
      CHECK(decision.recovered == (call >= 5 && call < 9 ? 1u : 0u));
      CHECK(gnmr_decision_count(controllers[i]) == (uint64_t)call + 1);
    }
  }
  for (int i = 0; i < 4; ++i) gnmr_destroy(controllers[i]);
}

/* A step that begins again, or is left before its report, does not count. */
static void test_an_unreported_step_does_not_count(void) {
  gnmr_controller* once = make_controller();
  gnmr_controller* twice = make_controller();
  const double calm[kUnits] = {1, 1, 1, 1};
  const double spike[kUnits] = {1, 9, 8, 1};
  gnmr_signals a = GNMR_SIGNALS_INIT;
  gnmr_signals b = GNMR_SIGNALS_INIT;
  warm_up(once);
  warm_up(twice);
  CHECK_OK(gnmr_begin(twice, 4, NULL));
  CHECK_OK(gnmr_begin(twice, 5, NULL));
  CHECK_OK(take_step(once, 5, calm, NULL, kUnits));
  CHECK_OK(take_step(twice, 5, calm, NULL, kUnits));
  CHECK(gnmr_decision_count(once) == 6 && gnmr_decision_count(twice) == 6);
  CHECK_OK(take_step(once, 6, spike, NULL, kUnits));
  CHECK_OK(take_step(twice, 6, spike, NULL, kUnits));
  CHECK_OK(gnmr_get_signals(once, 1, &a));
  CHECK_OK(gnmr_get_signals(twice, 1, &b));
  CHECK(a.ratio == b.ratio && a.delta == b.delta);
  gnmr_destroy(once);
  gnmr_destroy(twice);
}

/* The host reports a step while the next one runs: the gate holds one, and its batch comes back as a trial. */
static void test_lag_one(const char* folder) {
  enum { kCount = 12 };
  static char names[kCount][8];
  gnmr_unit units[kCount];
  gnmr_backend backend = GNMR_BACKEND_INIT;
  gnmr_controller* controller = NULL;
  gnmr_controller* resumed = NULL;
  gnmr_plan plan = GNMR_PLAN_INIT;
  gnmr_report report = GNMR_REPORT_INIT;
  gnmr_outcome outcome = GNMR_OUTCOME_INIT;
  double norms[kCount];
  double errors[kCount];
  float limits[kCount];
  size_t count = 0;
  uint8_t flags[kCount];
  uint8_t paths[kCount];
  int32_t held[16] = {0};
  char path[4096];
  static const char kLate[] = "{\"warmup_samples\":3,\"max_o\":2,\"lag\":1}";
  snprintf(path, sizeof(path), "%s/late.gnmr", folder);
  for (int i = 0; i < kCount; ++i) {
    const gnmr_unit plain = GNMR_UNIT_INIT;
    snprintf(names[i], sizeof(names[i]), "u%d", i);
    units[i] = plain;
    units[i].name = names[i];
    norms[i] = 1;
  }
  backend.can_rerun = 1;
  backend.sites = 1;
  CHECK_OK(gnmr_create(units, kCount, kLate, &backend, &controller));
  CHECK_OK(gnmr_create(units, kCount, kLate, &backend, &resumed));
  report.norms_double = norms;
  report.unit_count = kCount;
  for (int step = 1; step < 9; ++step) {
    CHECK_OK(gnmr_begin(controller, step, &plan));
    CHECK(plan.batch == step && plan.hold == GNMR_HOLD_FOR_TRIAL);
    CHECK_OK(gnmr_gate_flags(controller, flags, kCount));
    CHECK(flags[0] == (step <= 5 ? 13 : 1)); /* the first plans are made in a doubt of 8 */
    report.step = step;
    report.held = 0;
    norms[3] = step == 7 ? 40 : 1;
    CHECK_OK(gnmr_gate_holds(controller, &report, &held[step]));
    CHECK(held[step] == (step == 7));
    CHECK(gnmr_gate_holds(controller, &report, &held[0]) == GNMR_ERROR_INPUT); /* judged already */
    if (step == 1) continue;
    report.step = step - 1;
    CHECK(gnmr_gate_holds(controller, &report, &held[0]) == GNMR_ERROR_INPUT); /* not the one that has begun last */
    norms[3] = step - 1 == 7 ? 40 : 1;
    report.held = held[step - 1];
    CHECK_OK(gnmr_report_step(controller, &report, &outcome));
    CHECK(outcome.action == (step - 1 == 7 ? GNMR_ACTION_RERUN : GNMR_ACTION_APPLY));
    CHECK(outcome.decided == 1 && outcome.in_force_from == step + 1);
  }
  report.held = 0;
  report.step = 8;
  norms[3] = 1;
  CHECK_OK(gnmr_report_step(controller, &report, &outcome)); /* early, for a checkpoint */
  CHECK_OK(gnmr_save(controller, path));
  CHECK_OK(gnmr_load(resumed, path, NULL));
  CHECK_OK(gnmr_begin(controller, 9, &plan));
  CHECK(plan.batch == 7 && plan.again == 1 && plan.pass == GNMR_PASS_TRIAL && plan.hold == GNMR_HOLD_NEVER);
  CHECK(gnmr_gate_holds(resumed, &report, &held[9]) == GNMR_ERROR_INPUT); /* nothing has begun */
  CHECK_OK(gnmr_begin(resumed, 9, &plan));
  report.step = 9;
  CHECK_OK(gnmr_gate_holds(resumed, &report, &held[9]));
  CHECK(held[9] == 0);
  CHECK(plan.batch == 7 && plan.again == 1 && plan.pass == GNMR_PASS_TRIAL);
  /* The trial admits unit 4. Step 10 was planned before: there the unit is free, however early step 10 is reported. */
  for (int i = 0; i < kCount; ++i) errors[i] = i == 4 ? 0.9 : 0.02;
  CHECK_OK(gnmr_begin(controller, 10, &plan));
  report.step = 9;
  report.errors = errors;
  report.error_count = kCount;
  CHECK_OK(gnmr_report_step(controller, &report, &outcome));
  CHECK(outcome.verdict == GNMR_VERDICT_NUMERIC && count_of(controller, GNMR_LIST_ADMITTED) == 1);
  report.step = 10;
  report.errors = NULL;
  report.error_count = 0;
  CHECK_OK(gnmr_report_step(controller, &report, &outcome));
  CHECK_OK(gnmr_gate_flags(controller, flags, kCount));
  CHECK_OK(gnmr_paths(controller, paths, kCount));
  CHECK(flags[4] == 1 && paths[4] == 0);
  CHECK_OK(gnmr_begin(controller, 11, &plan));
  CHECK_OK(gnmr_gate_flags(controller, flags, kCount));
  CHECK_OK(gnmr_paths(controller, paths, kCount));
  CHECK(flags[4] == 0 && flags[3] == 1 && paths[4] == 255);
  /* Errors close the gate as well: one that is infinite, or above its limit; not that of a unit in recovery. */
  CHECK(plan.hold == GNMR_HOLD_FOR_TRIAL);
  CHECK(gnmr_error_limits(controller, limits, kCount - 1, &count) == GNMR_ERROR_CAPACITY);
  CHECK_OK(gnmr_error_limits(controller, limits, kCount, &count));
  CHECK(count == kCount && isinf(limits[0]));
  report.step = 11;
  report.errors = errors;
  report.error_count = kCount - 1;
  errors[4] = INFINITY;
  CHECK(gnmr_gate_holds(controller, &report, &held[11]) == GNMR_ERROR_INPUT);
  report.error_count = kCount;
  CHECK_OK(gnmr_gate_holds(controller, &report, &held[11]));
  CHECK(held[11] == 0);
  CHECK_OK(gnmr_begin(controller, 12, &plan));
  report.step = 12;
  errors[3] = INFINITY;
  CHECK_OK(gnmr_gate_holds(controller, &report, &held[12]));
  CHECK(held[12] == 1);
  gnmr_destroy(controller);
  gnmr_destroy(resumed);
}

/* One of six units has errors that are always far above those of the others. */
static void test_standing_recovery(const char* folder) {
  enum { kSix = 6, kCoarse = 4 };
  static const char* const kNames[kSix] = {"a", "b", "c", "d", "e", "f"};
  static const double kNorms[kSix] = {1, 1, 1, 1, 1, 1};
  double errors[kSix];
  gnmr_unit units[kSix];
  gnmr_backend backend = GNMR_BACKEND_INIT;
  gnmr_controller* controller = NULL;
  gnmr_report report = GNMR_REPORT_INIT;
  gnmr_decision decision = GNMR_DECISION_INIT;
  uint32_t listed[kSix] = {99};
  size_t count = 0;
  int admitted_at = 0;
  int measured = 0;
  char path[4096];
  snprintf(path, sizeof(path), "%s/standing.gnmr", folder);
  for (int i = 0; i < kSix; ++i) {
    const gnmr_unit plain = GNMR_UNIT_INIT;
    units[i] = plain;
    units[i].name = kNames[i];
    errors[i] = i == kCoarse ? 0.5 : 0.05;
  }
  backend.sites = 1;
  CHECK_OK(gnmr_create(units, kSix, "{\"max_o\":2,\"coarse_error\":0.2,\"coarse_factor\":2}", &backend, &controller));
  report.norms_double = kNorms;
  report.unit_count = kSix;
  report.errors = errors;
  report.error_count = kSix;
  for (int step = 1; step <= 80; ++step) {
    gnmr_plan plan = GNMR_PLAN_INIT;
    CHECK_OK(gnmr_begin(controller, step, &plan));
    CHECK_OK(gnmr_list_copy(controller, GNMR_LIST_MEASURE, listed, kSix, &count));
    CHECK(count == plan.measure && count <= plan.recovered);
    if (count > 0) {
      CHECK(count == 1 && listed[0] == kCoarse && (step + kCoarse) % 20 == 0);
      ++measured;
    }
    report.step = step;
    CHECK_OK(gnmr_report_step(controller, &report, NULL));
    CHECK_OK(gnmr_get_decision(controller, &decision));
    CHECK(decision.admitted == 0 && decision.newly_standing <= decision.standing);
    CHECK(decision.newly_standing == (decision.standing == 1 && admitted_at == 0 ? 1u : 0u));
    if (decision.standing == 1 && admitted_at == 0) admitted_at = step;
  }
  CHECK(admitted_at > 20 && admitted_at <= 40);
  CHECK(measured >= 2);
  CHECK(decision.standing == 1 && decision.recovered == 1);
  CHECK_OK(gnmr_list_copy(controller, GNMR_LIST_STANDING, listed, kSix, &count));
  CHECK(count == 1 && listed[0] == kCoarse);
  CHECK_OK(gnmr_save(controller, path));
  gnmr_destroy(controller);
  CHECK_OK(gnmr_create(units, kSix, "{\"max_o\":2,\"coarse_error\":0.2}", &backend, &controller));
  CHECK_OK(gnmr_load(controller, path, NULL));
  CHECK_OK(gnmr_get_decision(controller, &decision));
  CHECK(decision.standing == 1 && decision.newly_standing == 0 && decision.recovered == 1);
  gnmr_destroy(controller);
}

static void test_null_controller(void) {
  const double norms[1] = {1};
  size_t count = 0;
  gnmr_decision decision = GNMR_DECISION_INIT;
  CHECK(take_step(NULL, 0, norms, NULL, 1) == GNMR_ERROR_ARGUMENT);
  CHECK(strstr(gnmr_error_text(NULL), "NULL") != NULL);
  CHECK(gnmr_report_step(NULL, NULL, NULL) == GNMR_ERROR_ARGUMENT);
  CHECK(gnmr_set_mode(NULL, 0) == GNMR_ERROR_ARGUMENT);
  CHECK(gnmr_get_decision(NULL, &decision) == GNMR_ERROR_ARGUMENT);
  CHECK(gnmr_list_count(NULL, 0, &count) == GNMR_ERROR_ARGUMENT);
  CHECK(gnmr_save(NULL, "x") == GNMR_ERROR_ARGUMENT);
  CHECK(gnmr_load(NULL, "x", NULL) == GNMR_ERROR_ARGUMENT);
  CHECK(gnmr_unit_count(NULL) == 0 && gnmr_unit_name(NULL, 0) == NULL && gnmr_options_json(NULL) == NULL);
  CHECK(gnmr_decision_count(NULL) == 0);
  gnmr_destroy(NULL);
}

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  test_version();
  test_create_errors();
  test_structs_have_no_padding();
  test_reserved_members();
  test_structs_may_grow();
  test_step();
  test_errors();
  test_options_without_effect();
  test_a_trial_finds_the_wrong_unit(argv[1]);
  test_save_and_load(argv[1]);
  test_steps_are_labels();
  test_an_unreported_step_does_not_count();
  test_lag_one(argv[1]);
  test_standing_recovery(argv[1]);
  test_null_controller();
  if (failures == 0) puts("every check holds");
  return failures == 0 ? 0 : 1;
}
