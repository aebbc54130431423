/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GNMR's C interface: what a step measured in, what to do with its update and which units run high out.
 *
 *   gnmr_unit units[2] = {GNMR_UNIT_INIT, GNMR_UNIT_INIT};
 *   units[0].name = "layers.0";
 *   units[1].name = "layers.1";
 *   gnmr_controller* controller = NULL;
 *   if (gnmr_create(units, 2, NULL, NULL, &controller) != GNMR_OK) puts(gnmr_error_text(NULL));
 *   for (step = 1; ...; ++step) {
 *     gnmr_outcome outcome = GNMR_OUTCOME_INIT;
 *     do {
 *       gnmr_plan plan = GNMR_PLAN_INIT;
 *       gnmr_begin(controller, step, &plan);
 *       gnmr_paths(controller, paths, 2);
 *       ... forward and backward, each unit on its path; in a trial each low path is measured beside it ...
 *       gnmr_report report = GNMR_REPORT_INIT;
 *       report.step = step;
 *       report.norms_float = norms;
 *       report.unit_count = 2;
 *       gnmr_report_step(controller, &report, &outcome);
 *     } while (outcome.action == GNMR_ACTION_RERUN);
 *     if (outcome.action == GNMR_ACTION_APPLY) ... the update ...
 *   }
 *   gnmr_destroy(controller);
 *
 * Goals: plain C99; no exception and no C++ type crosses; from version 1 on, what is compiled against one version runs
 * with every later one of the same major version. Until then it runs with its own minor version only.
 * Non-goals: traces, journals, other people's logs (the C++ headers and the program `gnmr` have them).
 *
 * Memory: what is handed in is read during the call only and stays the caller's. What comes out is copied into the
 * caller's memory, but for texts, each of which says how long it lives.
 *
 * Threads: one controller belongs to one thread at a time, for every function. Different controllers are independent.
 *
 * Errors: every function that can fail returns a status. After any other status than GNMR_OK the controller is as it
 * was before the call (but for gnmr_get_signals), and gnmr_error_text says what was wrong. NaN, infinity and zero among
 * norms are data, not errors.
 *
 * Structs begin with their size, so that they can grow: use the GNMR_..._INIT values. They have no padding in which a
 * later member could hide. `reserved` is 0; in a struct that goes in, another value is an error. From version 1 on
 * later versions only add members at the end, meanings of `reserved`, functions, and values of the enumerations.
 */
#ifndef GNMR_H_
#define GNMR_H_

#include <stddef.h>
#include <stdint.h>

/* The version of this interface; it is not that of the project. Until version 1 any minor version may change it. */
#define GNMR_API_VERSION_MAJOR 0
#define GNMR_API_VERSION_MINOR 3
#define GNMR_API_VERSION_PATCH 0

#if defined(__GNUC__)
#define GNMR_API __attribute__((visibility("default")))
#else
#define GNMR_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- versions and errors ---- */

/* The version of the library that is running: major * 1000000 + minor * 1000 + patch. */
GNMR_API uint32_t gnmr_api_version(void);

/* What a call came to. */
typedef int32_t gnmr_status;
enum {
  GNMR_OK = 0,
  GNMR_ERROR_ARGUMENT = 1, /* a null pointer, an index or a struct size that cannot be: the calling code is wrong */
  GNMR_ERROR_INPUT = 2,    /* units, options or norms that cannot be used, or calls in a wrong order */
  GNMR_ERROR_FILE = 3,     /* a file cannot be read or written, or does not hold what it should */
  GNMR_ERROR_CAPACITY = 4, /* the caller's memory is too small; how much is needed has been returned */
  GNMR_ERROR_MEMORY = 5,   /* no memory */
  GNMR_ERROR_INTERNAL = 6  /* a bug in the library */
};

/* A controller; only pointers to it exist outside the library. */
typedef struct gnmr_controller gnmr_controller;

/* What was wrong in the last call for this controller that failed; for NULL, in the last call of this thread that
 * failed without a controller (gnmr_create, or NULL where a controller is expected). "" where none has. Valid until the
 * next such call; never NULL. */
GNMR_API const char* gnmr_error_text(const gnmr_controller* controller);

/* ---- making one ---- */

/* What can be sent back to high precision on its own. */
typedef struct gnmr_unit {
  size_t struct_size; /* sizeof(gnmr_unit), the same in all of an array */
  const char* name;   /* UTF-8, unique, not empty */
  int64_t cost;       /* at least 1, say multiply-adds */
  const char* group;  /* UTF-8; NULL or "": none */
  int32_t forced;     /* not 0: kept high or low by the user, watched, but never admitted and in no budget */
  int32_t reserved;
} gnmr_unit;
#define GNMR_UNIT_INIT \
  { sizeof(gnmr_unit), NULL, 1, NULL, 0, 0 }

/* What the caller can do, and what it measures. */
typedef struct gnmr_backend {
  size_t struct_size; /* sizeof(gnmr_backend) */
  int32_t can_rerun;  /* not 0: a step can run again before its update; without: neither trial nor replay */
  int32_t can_hold;   /* not 0: `action` of an outcome is followed, and with lag 1 there is a gate: gnmr_gate_holds, or
                         one of your own by gnmr_gate_flags, gnmr_error_limits and docs/algorithm.md ("With a gate").
                         Without one say 0: else alarms that the gate should have raised are lost */
  uint32_t sites;     /* errors per unit, 0 to 16 */
  uint32_t reserved;
  const double* expected_errors; /* the format's own error of each site, 0: unknown; NULL: none is known */
} gnmr_backend;
#define GNMR_BACKEND_INIT \
  { sizeof(gnmr_backend), 0, 1, 0, 0, NULL }

/* Makes a controller for units in forward order. `options_json` is a JSON object of options and `preset`; NULL: the
 * defaults. An option in it that has no effect with this backend is an error. `backend` NULL: GNMR_BACKEND_INIT, so
 * only norms are known. On success *out is a controller that the caller destroys, else NULL. */
GNMR_API gnmr_status gnmr_create(const gnmr_unit* units, size_t unit_count, const char* options_json,
                                 const gnmr_backend* backend, gnmr_controller** out);

/* Ends a controller and everything that it handed out; NULL is allowed. */
GNMR_API void gnmr_destroy(gnmr_controller* controller);

/* ---- a step ---- */

/* How the batch of a step runs. */
enum {
  GNMR_PASS_STEP = 0,   /* as the decisions say */
  GNMR_PASS_REPLAY = 1, /* again, with the units high that its first run got admitted */
  GNMR_PASS_TRIAL = 2   /* all units high, each low path measured beside it */
};

/* What may close the gate of a step (lag 1): docs/algorithm.md, "With a gate". */
enum { GNMR_HOLD_NEVER = 0, GNMR_HOLD_FOR_TRIAL = 1, GNMR_HOLD_FOR_GUARD = 2 };

/* A step before it runs. */
typedef struct gnmr_plan {
  size_t struct_size; /* set by the caller: sizeof(gnmr_plan) */
  int64_t step;
  int64_t batch;      /* which batch it takes; data and random numbers should go by it */
  uint64_t recovered; /* units in recovery in this step */
  uint64_t measure;   /* of these, units whose low path is to be measured beside the step: GNMR_LIST_MEASURE */
  int32_t pass;       /* GNMR_PASS_... */
  int32_t again;      /* 1: the batch has run before */
  int32_t hold;       /* GNMR_HOLD_... */
  int32_t reserved;
} gnmr_plan;
#define GNMR_PLAN_INIT \
  { sizeof(gnmr_plan), 0, 0, 0, 0, 0, 0, 0, 0 }

/* The step before it runs. After GNMR_ACTION_RERUN with lag 0 the same step begins again, as the rerun. With lag 1 a
 * step begins before the one before it is reported. `plan` may be NULL.
 *
 * Histories, locks and cooldowns count decisions, not step numbers: with lag 0 steps may be left out, and a smaller
 * number than the last takes nothing back. A caller that goes back to an earlier step loads the state that was saved
 * there (gnmr_load). */
GNMR_API gnmr_status gnmr_begin(gnmr_controller* controller, int64_t step, gnmr_plan* plan);

/* The path of each unit in the step that has begun last: 0 low, 255 high. `count` is the number of units. */
GNMR_API gnmr_status gnmr_paths(const gnmr_controller* controller, uint8_t* paths, size_t count);

/* Lag 1: what a gate needs to know of each unit in the step that has begun last: 1 it could be admitted, 2 a norm of 0
 * counts as no sample, bits 2 and 3 the binary logarithm of the doubt (docs/algorithm.md, "Doubt"). `count` is the
 * number of units. */
GNMR_API gnmr_status gnmr_gate_flags(const gnmr_controller* controller, uint8_t* flags, size_t count);

/* Lag 1: what the errors of the step that has begun last must not exceed at a gate, units x sites, those of a unit side
 * by side. `*count` becomes their number, 0: its gate judges no errors; where that is more than `capacity` nothing is
 * copied and the status is GNMR_ERROR_CAPACITY. */
GNMR_API gnmr_status gnmr_error_limits(const gnmr_controller* controller, float* limits, size_t capacity,
                                       size_t* count);

/* How a run of a step ended. */
enum {
  GNMR_DONE_COMPLETE = 0,
  GNMR_DONE_RERUN_FAILED = 1, /* the trial or replay failed; with lag 1 its batch ran as a plain step instead */
  GNMR_DONE_DROPPED = 2       /* there are no numbers: a loss scaler skipped the step, say; not of a rerun at lag 0 */
};

/* What a run of a step measured. */
typedef struct gnmr_report {
  size_t struct_size;         /* sizeof(gnmr_report) */
  int64_t step;               /* that has begun; with lag 1 the oldest that was not reported */
  const double* norms_double; /* L2 norm per unit, before clipping; one of the two is set unless there are no numbers */
  const float* norms_float;
  const uint8_t* sampled; /* per unit, 0: no gradient in this step, its norm is not read; NULL: every unit has one */
  size_t unit_count;      /* of norms and `sampled` */
  const double* errors;   /* units x sites, those of a unit side by side, NaN: not measured; NULL: none was */
  size_t error_count;
  int32_t done;          /* GNMR_DONE_... */
  int32_t may_not_rerun; /* lag 0: 1: this step cannot run again */
  int32_t held;          /* lag 1: 1: the gate held the update */
  int32_t reserved;
} gnmr_report;
#define GNMR_REPORT_INIT \
  { sizeof(gnmr_report), 0, NULL, NULL, NULL, 0, NULL, 0, 0, 0, 0, 0 }

/* Lag 1: sets *held to 1 where the update of the step that has begun last is to be held, by norms, `sampled` and errors
 * of `report` (its other members are not read), else to 0. The errors are those that are reported later. To be asked
 * once in every step, in their order and before the update, by callers whose `can_hold` is not 0 and who have no gate
 * of their own; what it said goes into the report of the step. */
GNMR_API gnmr_status gnmr_gate_holds(gnmr_controller* controller, const gnmr_report* report, int32_t* held);

/* What to do with the update of the reported run. */
enum {
  GNMR_ACTION_APPLY = 0, /* make it, scaled by gnmr_clip */
  GNMR_ACTION_HOLD = 1,  /* make none */
  GNMR_ACTION_RERUN = 2  /* make none: gnmr_begin returns the batch again, at once with lag 0, later with lag 1 */
};

/* What a trial found. */
enum {
  GNMR_VERDICT_NONE = 0,
  GNMR_VERDICT_NUMERIC = 1,  /* errors of low paths are above their limits */
  GNMR_VERDICT_COMMON = 2,   /* high precision shows the same: data or optimizer */
  GNMR_VERDICT_UNLOCATED = 3 /* high precision does not show it, and no error is above its limit */
};

/* What a report came to. */
typedef struct gnmr_outcome {
  size_t struct_size; /* set by the caller: sizeof(gnmr_outcome) */
  int64_t step;
  int64_t in_force_from; /* the first step in which the decision holds; 0 where there is none yet */
  uint64_t findings;     /* units with an error above its limit */
  int32_t decided;       /* 0: the decision waits for the rerun of this step */
  int32_t action;        /* GNMR_ACTION_... */
  int32_t rerun;         /* with GNMR_ACTION_RERUN: GNMR_PASS_REPLAY or GNMR_PASS_TRIAL */
  int32_t verdict;       /* GNMR_VERDICT_... */
  int32_t alarmed;       /* 1: by norms or errors */
  int32_t dismissed;     /* 1: errors of all units found nothing to confirm the alarm of the norms */
  int32_t spent;         /* 1: a rerun was due, but a limit is reached, or no place is free */
  int32_t called;        /* lag 1: 1: the next planned step is a trial */
} gnmr_outcome;
#define GNMR_OUTCOME_INIT \
  { sizeof(gnmr_outcome), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/* Takes what a run of a step measured, and decides. `outcome` may be NULL. */
GNMR_API gnmr_status gnmr_report_step(gnmr_controller* controller, const gnmr_report* report, gnmr_outcome* outcome);

/* The guard `clip`: the coefficient of each unit's gradient by the last report, 1 where nothing is scaled. `count` is
 * the number of units. */
GNMR_API gnmr_status gnmr_clip(const gnmr_controller* controller, double* coefficients, size_t count);

/* What a finding is. */
enum { GNMR_FINDING_ACUTE = 0 /* an error above its limit */ };

/* A unit with an error above its limit: the site where it is highest above. An array of them: it does not grow. */
typedef struct gnmr_finding {
  uint32_t unit;
  uint32_t site;
  double error;
  double excess;     /* error over its limit, above 1 */
  uint32_t kind;     /* GNMR_FINDING_... */
  uint32_t reserved; /* 0 */
} gnmr_finding;

/* Copies the findings of the last report: of its trial, else of its errors; units ascend. `*count` becomes their
 * number; where that is more than `capacity` nothing is copied and the status is GNMR_ERROR_CAPACITY. */
GNMR_API gnmr_status gnmr_findings(const gnmr_controller* controller, gnmr_finding* findings, size_t capacity,
                                   size_t* count);

/* Whether decisions are carried out. */
enum {
  GNMR_MODE_ARMED = 0, /* recoveries, trials and guards take effect */
  GNMR_MODE_WATCH = 1, /* decisions are made, nothing is switched, held or run again */
  GNMR_MODE_HIGH = 2   /* as GNMR_MODE_WATCH, and every unit runs high */
};

/* From the next gnmr_begin on. */
GNMR_API gnmr_status gnmr_set_mode(gnmr_controller* controller, int32_t mode);

/* ---- what came of it ---- */

/* What the norms of the last report say, over all units. */
typedef struct gnmr_alarm {
  size_t struct_size; /* set by the caller: sizeof(gnmr_alarm) */
  int64_t step;
  uint64_t sampled; /* units with a sample */
  uint64_t finite;  /* of these, with a finite norm */
  uint64_t risks;   /* units at risk */
  double centre;    /* mean ratio of the step, each capped at 2 */
  int32_t common;   /* 1: the cause is common to the units, nothing is admitted */
  int32_t reserved;
} gnmr_alarm;
#define GNMR_ALARM_INIT \
  { sizeof(gnmr_alarm), 0, 0, 0, 0, 0.0, 0, 0 }

/* The alarm of the last report; zeros and a centre of 1 before the first and after gnmr_load. */
GNMR_API gnmr_status gnmr_get_alarm(const gnmr_controller* controller, gnmr_alarm* out);

/* The last decision. */
typedef struct gnmr_decision {
  size_t struct_size; /* set by the caller: sizeof(gnmr_decision) */
  int64_t step;
  uint64_t recovered; /* units in recovery from the next step on */
  uint64_t admitted;  /* not to standing recovery */
  uint64_t denied;
  uint64_t futile;         /* released, and still as bad as before */
  uint64_t released;       /* the futile ones included, and those that lost their place to others */
  uint64_t standing;       /* in standing recovery: their errors are always far above those of other units */
  uint64_t newly_standing; /* of these, the ones that were not before */
  int64_t recovered_cost;
  int32_t common;
  int32_t reserved;
} gnmr_decision;
#define GNMR_DECISION_INIT \
  { sizeof(gnmr_decision), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/* The last decision; after gnmr_load, the recoveries that were loaded; zeros before the first. */
GNMR_API gnmr_status gnmr_get_decision(const gnmr_controller* controller, gnmr_decision* out);

/* Lists of units. Unless they say something else they are of the last decision and stay until the next one. */
typedef int32_t gnmr_list;
enum {
  GNMR_LIST_RECOVERED = 0,
  GNMR_LIST_ADMITTED = 1,
  GNMR_LIST_DENIED = 2,
  GNMR_LIST_FUTILE = 3,
  GNMR_LIST_RELEASED = 4,
  GNMR_LIST_RISKS = 5, /* of the last report */
  GNMR_LIST_STANDING = 6,
  GNMR_LIST_NEWLY_STANDING = 7,
  GNMR_LIST_MEASURE = 8 /* of the step that has begun last: run high, and their low paths are measured beside it */
};

/* How many units a list has. */
GNMR_API gnmr_status gnmr_list_count(const gnmr_controller* controller, gnmr_list list, size_t* count);

/* Copies the indices of a list, ascending. `*count` becomes the length of the list; where that is more than `capacity`
 * nothing is copied and the status is GNMR_ERROR_CAPACITY. */
GNMR_API gnmr_status gnmr_list_copy(const gnmr_controller* controller, gnmr_list list, uint32_t* indices,
                                    size_t capacity, size_t* count);

/* One byte per unit: 1 where it is in recovery by the last decision, else 0. `count` is the number of units. */
GNMR_API gnmr_status gnmr_recovered_mask(const gnmr_controller* controller, uint8_t* mask, size_t count);

/* Why a unit is at risk, or in recovery. No norm has the last three. */
enum {
  GNMR_RISK_NONE = 0,
  GNMR_RISK_NON_FINITE = 1,
  GNMR_RISK_RISE = 2,
  GNMR_RISK_FALL = 3,
  GNMR_RISK_ERROR = 4,  /* an error above its limit */
  GNMR_RISK_COARSE = 5, /* errors that are always far above those of other units: standing recovery */
  GNMR_RISK_FILL = 6    /* errors that are always large, beside coarse units: standing recovery in a spare budget */
};

/* The signals of one unit; NaN where one is not defined. */
typedef struct gnmr_signals {
  size_t struct_size; /* set by the caller: sizeof(gnmr_signals) */
  double ratio;       /* GNMR */
  double delta;       /* Delta-GNMR */
  double fall;        /* Fall-GNMR */
  double severity;    /* above 1: at risk, if warm */
  int32_t sampled;
  int32_t risk; /* GNMR_RISK_... */
} gnmr_signals;
#define GNMR_SIGNALS_INIT \
  { sizeof(gnmr_signals), 0.0, 0.0, 0.0, 0.0, 0, 0 }

/* The signals of a unit by the norms that were reported last. */
GNMR_API gnmr_status gnmr_get_signals(const gnmr_controller* controller, uint32_t unit, gnmr_signals* out);

/* Decisions that a unit will still be in recovery for; 0: it is not in recovery. */
GNMR_API gnmr_status gnmr_steps_left(const gnmr_controller* controller, uint32_t unit, uint32_t* out);

/* ---- what it is ---- */

/* How many units there are; 0 for NULL. */
GNMR_API size_t gnmr_unit_count(const gnmr_controller* controller);

/* The name of a unit, which lives as long as the controller; NULL where there is no such unit. */
GNMR_API const char* gnmr_unit_name(const gnmr_controller* controller, uint32_t unit);

/* All options as a JSON object, which lives as long as the controller; NULL for NULL. */
GNMR_API const char* gnmr_options_json(const gnmr_controller* controller);

/* Decisions taken so far, over all resumed runs; 0 for NULL. */
GNMR_API uint64_t gnmr_decision_count(const gnmr_controller* controller);

/* ---- saving and loading ---- */

/* Writes the state to a file in place of the one that is there: all of it or nothing. With lag 1 the plan of the next
 * step is part of it, with lag 0 batches that wait. A step that waits for its rerun, or was not reported, is not; with
 * lag 1 and two such steps the older one is: after loading it is reported as GNMR_DONE_DROPPED. */
GNMR_API gnmr_status gnmr_save(gnmr_controller* controller, const char* path);

/* What loading did besides taking over histories. */
typedef struct gnmr_load_report {
  size_t struct_size;         /* set by the caller: sizeof(gnmr_load_report) */
  uint64_t unknown_units;     /* in the file, not in this controller: dropped */
  uint64_t new_units;         /* in this controller, not in the file: they start afresh */
  uint64_t released_units;    /* recoveries that no longer fit */
  int32_t beta_changed;       /* 1: means start afresh */
  int32_t noise_beta_changed; /* 1: usual changes start afresh */
  int32_t window_changed;
  int32_t error_beta_changed; /* 1: usual errors start afresh */
  int32_t sites_changed;      /* 1: likewise */
  int32_t reserved;
} gnmr_load_report;
#define GNMR_LOAD_REPORT_INIT \
  { sizeof(gnmr_load_report), 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/* Takes over the state in a file: histories by unit name, the controller's options win. `report` may be NULL. */
GNMR_API gnmr_status gnmr_load(gnmr_controller* controller, const char* path, gnmr_load_report* report);

#ifdef __cplusplus
}
#endif

#endif /* GNMR_H_ */
