/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GNMR's C interface: gradient norms in, units to run in high precision out.
 *
 *   gnmr_unit units[2] = {GNMR_UNIT_INIT, GNMR_UNIT_INIT};
 *   units[0].name = "layers.0";
 *   units[1].name = "layers.1";
 *   gnmr_controller* controller = NULL;
 *   if (gnmr_create(units, 2, "{\"preset\":\"paper\"}", &controller) != GNMR_OK) puts(gnmr_error_text(NULL));
 *   ...
 *   gnmr_step_float(controller, step, norms, NULL, 2);
 *   gnmr_recovered_mask(controller, mask, 2);
 *   ...
 *   gnmr_destroy(controller);
 *
 * Goals: plain C99; no exception and no C++ type crosses; what is compiled against one version runs with every later
 * one of the same major version.
 * Non-goals: traces, journals, other people's logs (the C++ headers and the program `gnmr` have them).
 *
 * Memory: what is handed in is read during the call only and stays the caller's. What comes out is copied into the
 * caller's memory, but for texts, each of which says how long it lives.
 *
 * Threads: one controller belongs to one thread at a time, for every function. Different controllers are independent.
 *
 * Errors: every function that can fail returns a status. After any other status than GNMR_OK the controller is as it
 * was before the call, and gnmr_error_text says what was wrong. NaN, infinity and zero among norms are data, not
 * errors.
 *
 * Structs begin with their size, so that they can grow: use the GNMR_..._INIT values. Later versions only add members
 * at the end, functions, and values of the enumerations.
 */
#ifndef GNMR_H_
#define GNMR_H_

#include <stddef.h>
#include <stdint.h>

/* The version of this interface; it is not that of the project. */
#define GNMR_API_VERSION_MAJOR 1
#define GNMR_API_VERSION_MINOR 0
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
  GNMR_ERROR_CAPACITY = 4, /* the caller's memory is too small; how much is needed has been told */
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
} gnmr_unit;
#define GNMR_UNIT_INIT \
  { sizeof(gnmr_unit), NULL, 1, NULL, 0 }

/* Makes a controller for units in forward order. `options_json` is a JSON object of options and `preset`; NULL: the
 * defaults. On success *out is a controller that the caller destroys, else NULL. */
GNMR_API gnmr_status gnmr_create(const gnmr_unit* units, size_t unit_count, const char* options_json,
                                 gnmr_controller** out);

/* Ends a controller and everything that it handed out; NULL is allowed. */
GNMR_API void gnmr_destroy(gnmr_controller* controller);

/* ---- a step ---- */

/* Observes and decides: one L2 norm a unit, before clipping, `count` of them. `sampled` is NULL, or has one byte a
 * unit: 0 where the unit had no gradient in this step (its norm is then not read).
 *
 * `step` is a label: it comes back in the alarm and the decision, and nothing is computed from it. Histories, locks and
 * cooldowns count decisions. So every call is one more step for the controller: a step that is repeated (a batch once
 * more, a retry after a crash) counts again, steps may be left out, and a smaller one than the last is no error and
 * takes nothing back. A caller that goes back to an earlier step loads the state that was saved there (gnmr_load), and
 * one that runs a step again before the update withdraws the first observation (gnmr_withdraw). */
GNMR_API gnmr_status gnmr_step_double(gnmr_controller* controller, int64_t step, const double* norms,
                                      const uint8_t* sampled, size_t count);
GNMR_API gnmr_status gnmr_step_float(gnmr_controller* controller, int64_t step, const float* norms,
                                     const uint8_t* sampled, size_t count);

/* The first half of a step: signals and alarm; the state does not change. */
GNMR_API gnmr_status gnmr_observe_double(gnmr_controller* controller, int64_t step, const double* norms,
                                         const uint8_t* sampled, size_t count);
GNMR_API gnmr_status gnmr_observe_float(gnmr_controller* controller, int64_t step, const float* norms,
                                        const uint8_t* sampled, size_t count);

/* The second half: decides on the pending observation. `severities` is NULL with count 0: units at risk by their norms
   ask for recovery. Or it is one number a unit, say the error of its low path over its limit: those above 1 ask
   instead, the highest first, whatever the norms say; NaN does not ask. */
GNMR_API gnmr_status gnmr_decide(gnmr_controller* controller, const double* severities, size_t count);

/* Takes back the pending observation, if there is one. */
GNMR_API gnmr_status gnmr_withdraw(gnmr_controller* controller);

/* ---- what came of it ---- */

/* The last observation over all units. */
typedef struct gnmr_alarm {
  size_t struct_size; /* set by the caller: sizeof(gnmr_alarm) */
  int64_t step;
  uint64_t sampled; /* units with a sample */
  uint64_t finite;  /* of these, with a finite norm */
  uint64_t risks;   /* units at risk */
  double centre;    /* mean ratio of the step, each capped at 2 */
  int32_t common;   /* 1: the cause is common to the units, nothing is admitted */
} gnmr_alarm;
#define GNMR_ALARM_INIT \
  { sizeof(gnmr_alarm), 0, 0, 0, 0, 0.0, 0 }

/* The alarm of the last observation; zeros and a centre of 1 before the first and after gnmr_load. */
GNMR_API gnmr_status gnmr_get_alarm(const gnmr_controller* controller, gnmr_alarm* out);

/* The last decision. */
typedef struct gnmr_decision {
  size_t struct_size; /* set by the caller: sizeof(gnmr_decision) */
  int64_t step;
  uint64_t recovered; /* units in recovery from the next step on */
  uint64_t admitted;
  uint64_t denied;
  uint64_t futile;   /* released, and still as bad as before */
  uint64_t released; /* the futile ones included */
  int64_t recovered_cost;
  int32_t common;
} gnmr_decision;
#define GNMR_DECISION_INIT \
  { sizeof(gnmr_decision), 0, 0, 0, 0, 0, 0, 0, 0 }

/* The last decision; after gnmr_load, the recoveries that were loaded; zeros before the first. */
GNMR_API gnmr_status gnmr_get_decision(const gnmr_controller* controller, gnmr_decision* out);

/* Lists of units. All but the risks are of the last decision and stay until the next one. */
typedef int32_t gnmr_list;
enum {
  GNMR_LIST_RECOVERED = 0,
  GNMR_LIST_ADMITTED = 1,
  GNMR_LIST_DENIED = 2,
  GNMR_LIST_FUTILE = 3,
  GNMR_LIST_RELEASED = 4,
  GNMR_LIST_RISKS = 5 /* of the last observation */
};

/* How many units a list has. */
GNMR_API gnmr_status gnmr_list_count(const gnmr_controller* controller, gnmr_list list, size_t* count);

/* Copies the indices of a list, ascending. `*count` becomes the length of the list; where that is more than `capacity`
 * nothing is copied and the status is GNMR_ERROR_CAPACITY. */
GNMR_API gnmr_status gnmr_list_copy(const gnmr_controller* controller, gnmr_list list, uint32_t* indices,
                                    size_t capacity, size_t* count);

/* One byte a unit: 1 where it is in recovery by the last decision, else 0. `count` is the number of units. */
GNMR_API gnmr_status gnmr_recovered_mask(const gnmr_controller* controller, uint8_t* mask, size_t count);

/* Why a unit is at risk. */
enum { GNMR_RISK_NONE = 0, GNMR_RISK_NON_FINITE = 1, GNMR_RISK_RISE = 2, GNMR_RISK_FALL = 3 };

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

/* The signals of a unit in the last observation. */
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

/* Writes the state to a file in place of the one that is there: all of it or nothing. A pending observation is not part
 * of it. */
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
} gnmr_load_report;
#define GNMR_LOAD_REPORT_INIT \
  { sizeof(gnmr_load_report), 0, 0, 0, 0, 0, 0 }

/* Takes over the state in a file: histories by unit name, the controller's options win. `report` may be NULL. */
GNMR_API gnmr_status gnmr_load(gnmr_controller* controller, const char* path, gnmr_load_report* report);

#ifdef __cplusplus
}
#endif

#endif /* GNMR_H_ */
