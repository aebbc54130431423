// SPDX-License-Identifier: Apache-2.0
// What a training run is asked to do, each setting declared once.
//
// GNMR_TRAIN_SETTINGS and GNMR_OUTPUT_SETTINGS are the only lists: type, name, default, group in --help, what stands
// for the value, help. The struct, JSON (run.json, the engine's boundary), command-line flags and docs/train.md are all
// derived from them.
//
// Goals: one place to add a setting; a resumed run can name what differs. Non-goals: torch, files, printing; the
// controller's own options (gnmr/core/options.h) and what an experiment is asked to do
// (gnmr/lab/experiment/experiment_settings.h), which are members here: declared, checked and carried out elsewhere.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "gnmr/core/options.h"
#include "gnmr/lab/experiment/experiment_settings.h"

namespace gnmr::io {
class JsonObject;
}

namespace gnmr::run {

using Texts = std::vector<std::string>;

// X(type, name, default, group, value, help)
#define GNMR_TRAIN_SETTINGS(X)                                                                                         \
  X(std::string, model, "nano", "Model", "NAME|FILE",                                                                  \
    "A preset (nano, micro, ... llama2-13b: docs/models.md) or a config.json as Hugging Face writes it")               \
  X(std::string, init, "", "Model", "DIR|FILE", "Begin with these weights (safetensors) instead of random ones")       \
  X(double, outliers, 1, "Model", "X",                                                                                 \
    "One channel in 32 enters each block X times as large, the weights as much smaller: outliers to quantize")         \
  X(Texts, data, {}, "Data", "FILE...",                                                                                \
    "Text, read as bytes, or .bin files of 16-bit tokens; none: the Python standard library's sources")                \
  X(double, held_out, 0.05, "Data", "SHARE", "Share of the data that is never trained on, for evaluation")             \
  X(std::int64_t, then_at, 0, "Data", "N",                                                                             \
    "The run changes at this step (--lag 1: batch), as the next two say; 0: never")                                    \
  X(Texts, then_data, {}, "Data", "FILE...",                                                                           \
    "From then on this text, also for evaluation; @shifted: the same text with 128 added to each byte")                \
  X(double, then_lr, 0, "Data", "X", "From then on this highest learning rate; 0: as before")                          \
  X(std::int64_t, steps, 200, "Training", "N",                                                                         \
    "Optimizer steps; one whose update is held and comes again (--lag 1) does not count")                              \
  X(std::int64_t, seed, 0, "Training", "N", "Seed of weights, data order and stochastic rounding")                     \
  X(std::int64_t, batch, 8, "Training", "N", "Sequences per micro-batch")                                              \
  X(std::int64_t, sequence, 128, "Training", "N", "Tokens per sequence")                                               \
  X(std::int64_t, accumulate, 1, "Training", "N", "Micro-batches per step")                                            \
  X(double, lr, 0.003, "Training", "X", "Highest learning rate")                                                       \
  X(double, min_lr, 0.1, "Training", "SHARE", "Share of it that the cosine ends with")                                 \
  X(std::int64_t, warmup, 20, "Training", "N", "Steps over which the learning rate rises")                             \
  X(double, weight_decay, 0.1, "Training", "X", "AdamW's decay; not for norms and embeddings")                         \
  X(double, beta1, 0.9, "Training", "X", "AdamW's decay of the mean gradient")                                         \
  X(double, beta2, 0.95, "Training", "X", "AdamW's decay of the mean square")                                          \
  X(double, clip, 1.0, "Training", "X", "Largest gradient norm; 0: no clipping")                                       \
  X(bool, recompute, false, "Training", "", "Recompute each block's activations in backward, to save memory")          \
  X(std::int64_t, threads, 0, "Training", "N",                                                                         \
    "Threads; 0: as many as cores. A run repeats bit for bit with the same number")                                    \
  X(std::string, device, "cpu", "Training", "cpu|cuda", "Where to train")                                              \
  X(std::string, dtype, "float32", "Training", "float32|bfloat16",                                                     \
    "Weights, activations and gradients, and the high path's GEMMs; bfloat16 needs cuda: AdamW keeps a float32"        \
    " master copy")                                                                                                    \
  X(bool, graphs, false, "Training", "",                                                                               \
    "On a GPU, blocks as CUDA graphs, one per set of units in recovery: for models that keep the host busier than"     \
    " the GPU")                                                                                                        \
  X(std::string, recipe, "fp8-delayed", "Low precision", "NAME|FILE",                                                  \
    "How operands are quantized (`gnmr recipes` lists them), a recipe's JSON file, or none: all high")                 \
  X(std::string, granularity, "layer", "Low precision", "layer|product|block", "What one recoverable unit is")         \
  X(std::string, save_activations, "high", "Low precision", "high|fp8",                                                \
    "How inputs are saved for backward; with fp8 that is a further unit of each layer")                                \
  X(bool, recast_weights, false, "Low precision", "",                                                                  \
    "Backward quantizes weights again instead of keeping FP8 data: a byte less per weight, a little slower")           \
  X(Texts, allow, {}, "Low precision", "GLOB...", "Only linear layers whose names match take the low path [*]")        \
  X(Texts, deny, {}, "Low precision", "GLOB...", "Linear layers that are neither low nor watched [head]")              \
  X(Texts, always_high, {}, "Low precision", "GLOB...", "Units that are watched but stay high")                        \
  X(bool, evidence, false, "Low precision", "", "Measure the error, saturated and flushed share of quantization")      \
  X(std::string, controller, "gnmr", "Control", "none|gnmr|watch",                                                     \
    "none: norms are not judged; watch: decisions are written, nothing is switched")                                   \
  X(std::int64_t, watch_steps, 0, "Control", "N", "Only watch in the first N steps")                                   \
  X(Texts, set, {}, "Control", "GLOB=high@A:B",                                                                        \
    "A switchboard without a detector: these units high (or low) from step A to B, both included; @A:B may be left"    \
    " out")                                                                                                            \
  X(Texts, random_units, {}, "Control", "SHARE",                                                                       \
    "Instead of a detector: random units in recovery, this share of them, each for lock_steps steps")                  \
  X(double, patrol, 0.05, "Control", "SHARE",                                                                          \
    "Compare low-precision GEMMs with high precision beside each step, in all layers in the first 40 steps, then in"   \
    " as many in turn as this share of the step's multiply-adds allows (on a GPU, of what it could compute"            \
    " meanwhile); 0: no patrol, 1: all layers")                                                                        \
  X(double, refresh, 1.25, "Control", "X",                                                                             \
    "Delayed scaling: renew a scale before its interval is over if the history asks for one X times as large, or less" \
    " than half as large; 0: never")                                                                                   \
  X(std::string, evidence_from, "patrol", "Control", "patrol|casts",                                                   \
    "What the selectors evidence and evidence-alarm use: the patrol's errors, or what quantization did to operands")   \
  X(bool, norms, false, "Control", "", "Write every unit's gradient norm to norms.csv, for `gnmr tune` and replay")    \
  X(bool, errors, false, "Control", "", "Write every error that a patrol measured to errors.csv, for `gnmr tune`")     \
  X(std::int64_t, disarm_after, 0, "Control", "N",                                                                     \
    "Only watch from then on if nothing that was done over N steps helped; 0: never")

// Those that stand behind the settings of an experiment in --help and in run.json.
#define GNMR_OUTPUT_SETTINGS(X)                                                                                       \
  X(std::string, out, "", "Output", "DIR", "The run's folder [runs/MODEL-RECIPE-CONTROLLER-seedN]")                   \
  X(std::string, label, "", "Output", "TEXT", "What the report calls this run")                                       \
  X(std::int64_t, eval_every, 50, "Output", "N", "Steps from one evaluation to the next; 0: only at the end")         \
  X(std::int64_t, eval_batches, 8, "Output", "N", "Batches of an evaluation")                                         \
  X(std::int64_t, checkpoint_every, 50, "Output", "N", "Steps from one checkpoint to the next; 0: only at the end")   \
  X(std::int64_t, keep_checkpoints, 2, "Output", "N", "Older ones of this run are deleted; 0: keep all")              \
  X(std::int64_t, checkpoint_retry, 20, "Output", "SECONDS",                                                          \
    "How long to retry if the last checkpoint cannot be written")                                                     \
  X(std::int64_t, signals_every, 1, "Output", "N", "Steps from one row of ratios and errors to the next; 0: none")    \
  X(bool, resume, false, "Output", "", "Continue from the last checkpoint in --out; if there is none, start the run") \
  X(std::int64_t, resume_step, 0, "Output", "N",                                                                      \
    "With --resume: continue from the checkpoint of this step; 0: the last one")

/// All settings of a run.
struct TrainSettings {
#define GNMR_DECLARE(type, name, default_value, group, value, help) type name = default_value;
  GNMR_TRAIN_SETTINGS(GNMR_DECLARE)
  GNMR_OUTPUT_SETTINGS(GNMR_DECLARE)
#undef GNMR_DECLARE
  lab::ExperimentSettings experiment;  // the laboratory's: carried, and asked only who decides
  Options options;                     // the controller's

  bool operator==(const TrainSettings&) const = default;
};

/// A pointer to one setting of some object.
using SettingPointer = std::variant<std::string*, std::int64_t*, double*, bool*, Texts*>;

/// What is known of one setting besides its value.
struct SettingSpec {
  std::string_view name;
  std::string_view group;
  std::string_view value;
  std::string_view help;
  SettingPointer (*get)(TrainSettings&);
};

/// Every setting, in the order of the declaration.
const std::vector<SettingSpec>& setting_specs();

/// Checks ranges and words, but for the experiment (lab::check_experiment); throws `Error` naming the first setting
/// that is wrong.
void validate(const TrainSettings& settings);

/// Why the value of one of the controller's options changes nothing in such a run; empty: it has an effect.
std::string why_without_effect(std::string_view option, const TrainSettings& settings);

/// All settings as a JSON object; the controller's options under `options`.
std::string write_settings(const TrainSettings& settings);

/// Settings from such an object; an unknown key or a value of a wrong type is an `Error` that names it, absent ones
/// keep their defaults. Ranges and words are for `validate`.
TrainSettings read_settings(std::string_view json_text);
TrainSettings read_settings(const io::JsonObject& object);

/// The names of settings that a resumed run may not change and that differ.
///
/// What shapes data, weights and arithmetic must be equal, so that the run goes on bit for bit. These may change: where
/// and how often something is written (`out`, `label`, `resume`, `resume_step`, `eval_every`, `eval_batches`,
/// `checkpoint_every`, `keep_checkpoints`, `checkpoint_retry`, `signals_every`, `evidence`, `norms`, `errors`), what is
/// there already (`init`; `data` and `then_data`, whose content is compared by its fingerprint, not by its paths),
/// memory against time (`recompute`, `graphs`, `recast_weights`), and control (`controller`, its options,
/// `watch_steps`, `set`, `random_units`, `patrol`, `refresh`, `evidence_from`, `disarm_after`), with which the run is
/// from then on another one.
std::vector<std::string> changed_on_resume(const TrainSettings& before, const TrainSettings& now);

/// Who decides, in a word: the controller, or what stands in its place.
std::string controller_name(const TrainSettings& settings);

/// The folder of a run whose `out` is empty: `runs/nano-fp8-delayed-gnmr-seed0`.
std::string default_run_folder(const TrainSettings& settings);

/// A setting's value for people: `0.003`, `true`, `a b`; empty for an empty list or text.
std::string setting_text(const SettingSpec& spec, const TrainSettings& settings);

/// All settings as lists in Markdown, one per group: flag, default, meaning.
std::string settings_markdown();

}  // namespace gnmr::run
