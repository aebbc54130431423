// SPDX-License-Identifier: Apache-2.0
// A cell's result as JSON.
#include "gnmr/lab/cell_json.h"

#include "gnmr/core/error.h"
#include "gnmr/io/text_error.h"

namespace gnmr::lab {
namespace {

constexpr std::int64_t kCellVersion = 1;

std::uint64_t count_at(const Json& object, const char* key) {
  const std::int64_t count = run::whole_of(run::field(object, key), key);
  if (count < 0) throw Error(std::string("`") + key + "`: expected no less than 0");
  return static_cast<std::uint64_t>(count);
}

const Json& object_at(const Json& object, const char* key) {
  const Json& inner = run::field(object, key);
  if (!inner.is_object()) throw Error(std::string("`") + key + "`: expected an object");
  return inner;
}

Json detection_json(const Detection& detection) {
  Json object{{"faults", detection.faults},
              {"recall", json_number(detection.recall)},
              {"precision", json_number(detection.precision)},
              {"delay", json_number(detection.delay)}};
  if (detection.largest_delay) object["largest_delay"] = json_number(*detection.largest_delay);
  if (detection.outside) object["outside"] = *detection.outside;
  return object;
}

Json harm_json(const FaultHarm& harm) {
  return {{"faults", harm.faults},
          {"harmful", harm.harmful},
          {"met", harm.met},
          {"covered", harm.covered},
          {"of_run", harm.of_run}};
}

Json reruns_json(const Reruns& reruns) {
  return {{"numeric", reruns.numeric},
          {"common", reruns.common},
          {"unlocated", reruns.unlocated},
          {"replays", reruns.replays},
          {"time_share", json_number(reruns.time_share)}};
}

Detection detection_of(const Json& object) {
  const auto number = [&](const char* key) { return run::number_of(run::field(object, key), key); };
  Detection detection{.faults = count_at(object, "faults"),
                      .recall = number("recall"),
                      .precision = number("precision"),
                      .delay = number("delay")};
  if (object.contains("largest_delay")) detection.largest_delay = number("largest_delay");
  if (object.contains("outside")) detection.outside = count_at(object, "outside");
  return detection;
}

FaultHarm harm_of(const Json& object) {
  return {.faults = count_at(object, "faults"),
          .harmful = count_at(object, "harmful"),
          .met = count_at(object, "met"),
          .covered = count_at(object, "covered"),
          .of_run = count_at(object, "of_run")};
}

Reruns reruns_of(const Json& object) {
  return {.numeric = count_at(object, "numeric"),
          .common = count_at(object, "common"),
          // `gone` is what older files call it.
          .unlocated = count_at(object, object.contains("unlocated") ? "unlocated" : "gone"),
          .replays = count_at(object, "replays"),
          .time_share = run::number_of(run::field(object, "time_share"), "time_share")};
}

}  // namespace

Json cell_json(const CellResult& cell) {
  Json object{
      {"version", kCellVersion}, {"arm", cell.arm},     {"seed", cell.seed},   {"run", cell.run},
      {"finished", true},        {"steps", cell.steps}, {"units", cell.units}, {"loss", json_number(cell.loss)}};
  if (cell.loss_low) object["loss_low"] = json_number(*cell.loss_low);
  object["train_loss_tail"] = json_number(cell.train_loss_tail);
  object["share_mean"] = json_number(cell.share_mean);
  object["share_peak"] = json_number(cell.share_peak);
  object["high_mean"] = json_number(cell.high_mean);
  object["risks_per_thousand"] = json_number(cell.risks_per_thousand);
  object["admissions"] = cell.admissions;
  object["skipped_updates"] = cell.skipped_updates;
  object["step_ms"] = json_number(cell.step_ms);
  if (cell.detection) object.update(detection_json(*cell.detection));
  if (cell.harm) object["harm"] = harm_json(*cell.harm);
  if (cell.reruns) object["reruns"] = reruns_json(*cell.reruns);
  if (!cell.data.empty()) object["data"] = cell.data;
  if (!cell.note.empty()) object["note"] = cell.note;
  return object;
}

CellResult cell_of(const Json& object) {
  if (const std::int64_t version = run::whole_of(run::field(object, "version"), "version"); version != kCellVersion) {
    throw Error("version " + std::to_string(version) + ", this program reads " + std::to_string(kCellVersion));
  }
  const auto number = [&](const char* key) { return run::number_of(run::field(object, key), key); };
  const auto whole = [&](const char* key) { return run::whole_of(run::field(object, key), key); };
  CellResult cell{.arm = run::text_of(run::field(object, "arm"), "arm"),
                  .seed = whole("seed"),
                  .run = run::text_of(run::field(object, "run"), "run"),
                  .steps = whole("steps"),
                  .loss = number("loss"),
                  .train_loss_tail = number("train_loss_tail"),
                  .share_mean = number("share_mean"),
                  .share_peak = number("share_peak"),
                  .high_mean = number("high_mean"),
                  .risks_per_thousand = number("risks_per_thousand"),
                  .admissions = count_at(object, "admissions"),
                  .skipped_updates = whole("skipped_updates"),
                  .step_ms = number("step_ms"),
                  .units = whole("units")};
  if (object.contains("loss_low")) cell.loss_low = number("loss_low");
  if (object.contains("data")) cell.data = run::text_of(object.at("data"), "data");
  if (object.contains("note")) cell.note = run::text_of(object.at("note"), "note");
  if (object.contains("faults")) cell.detection = detection_of(object);
  if (object.contains("harm")) cell.harm = harm_of(object_at(object, "harm"));
  if (object.contains("reruns")) cell.reruns = reruns_of(object_at(object, "reruns"));
  return cell;
}

std::string write_cell(const CellResult& cell) { return cell_json(cell).dump(2) + "\n"; }

CellResult parse_cell(std::string_view text, const std::string& file) {
  try {
    return cell_of(run::parse_object(text));
  } catch (const Error& error) {
    throw io::error_at(file, error.what());
  }
}

}  // namespace gnmr::lab
