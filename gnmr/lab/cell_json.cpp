// SPDX-License-Identifier: Apache-2.0
// A cell's result as JSON.
#include "gnmr/lab/cell_json.h"

namespace gnmr::lab {
namespace {

constexpr std::int64_t kCellVersion = 1;

io::OrderedJson detection_json(const Detection& detection) {
  io::OrderedJson object{{"faults", detection.faults},
                         {"recall", io::json_number(detection.recall)},
                         {"precision", io::json_number(detection.precision)},
                         {"delay", io::json_number(detection.delay)}};
  if (detection.largest_delay) object["largest_delay"] = io::json_number(*detection.largest_delay);
  if (detection.outside) object["outside"] = *detection.outside;
  return object;
}

io::OrderedJson harm_json(const FaultHarm& harm) {
  return {{"faults", harm.faults},
          {"harmful", harm.harmful},
          {"met", harm.met},
          {"covered", harm.covered},
          {"of_run", harm.of_run}};
}

io::OrderedJson reruns_json(const Reruns& reruns) {
  return {{"numeric", reruns.numeric},
          {"common", reruns.common},
          {"unlocated", reruns.unlocated},
          {"replays", reruns.replays},
          {"time_share", io::json_number(reruns.time_share)}};
}

io::OrderedJson high_shares_json(const run::HighShares& shares) {
  return {{"acute", io::json_number(shares.acute)},
          {"standing", io::json_number(shares.standing)},
          {"reruns", io::json_number(shares.reruns)}};
}

io::OrderedJson origin_json(const RunOrigin& origin) {
  io::OrderedJson object{{"commit", origin.commit},
                         {"torch", origin.torch},
                         {"device", origin.device},
                         {"threads", origin.threads},
                         {"lag", origin.lag}};
  if (origin.patrol) object["patrol"] = io::json_number(*origin.patrol);
  return object;
}

RunOrigin origin_of(const io::JsonObject& object) {
  return {.commit = object.text_if("commit").value_or(""),
          .torch = object.text_if("torch").value_or(""),
          .device = object.text_if("device").value_or(""),
          .threads = object.whole_if("threads").value_or(0),
          .lag = object.whole_if("lag").value_or(0),
          .patrol = object.number_if("patrol")};
}

run::HighShares high_shares_of(const io::JsonObject& object) {
  return {.acute = object.number("acute"), .standing = object.number("standing"), .reruns = object.number("reruns")};
}

Detection detection_of(const io::JsonObject& object) {
  return {.faults = object.count("faults"),
          .recall = object.number("recall"),
          .precision = object.number("precision"),
          .delay = object.number("delay"),
          .largest_delay = object.number_if("largest_delay"),
          .outside = object.count_if("outside")};
}

FaultHarm harm_of(const io::JsonObject& object) {
  return {.faults = object.count("faults"),
          .harmful = object.count("harmful"),
          .met = object.count("met"),
          .covered = object.count("covered"),
          .of_run = object.count("of_run")};
}

Reruns reruns_of(const io::JsonObject& object) {
  return {.numeric = object.count("numeric"),
          .common = object.count("common"),
          // `gone` is what older files call it.
          .unlocated = object.count(object.has("unlocated") ? "unlocated" : "gone"),
          .replays = object.count("replays"),
          .time_share = object.number("time_share")};
}

}  // namespace

io::OrderedJson cell_json(const CellResult& cell) {
  io::OrderedJson object{
      {"version", kCellVersion}, {"arm", cell.arm},     {"seed", cell.seed},   {"run", cell.run},
      {"finished", true},        {"steps", cell.steps}, {"units", cell.units}, {"loss", io::json_number(cell.loss)}};
  const auto put_if_known = [&object](const char* key, const std::optional<double>& number) {
    if (number) object[key] = io::json_number(*number);
  };
  put_if_known("loss_low", cell.losses.low);
  put_if_known("loss_trained", cell.losses.trained);
  object["train_loss_tail"] = io::json_number(cell.losses.train_tail);
  object["share_mean"] = io::json_number(cell.share_mean);
  object["share_peak"] = io::json_number(cell.share_peak);
  object["high_mean"] = io::json_number(cell.high.mean);
  if (cell.high.shares) object["high_shares"] = high_shares_json(*cell.high.shares);
  put_if_known("high_total", cell.high.total);
  put_if_known("high_cost", cell.high.cost);
  object["risks_per_thousand"] = io::json_number(cell.risks_per_thousand);
  object["admissions"] = cell.admissions;
  object["skipped_updates"] = cell.skipped_updates;
  object["step_ms"] = io::json_number(cell.step_ms);
  if (cell.detection) object.update(detection_json(*cell.detection));
  if (cell.harm) object["harm"] = harm_json(*cell.harm);
  if (cell.reruns) object["reruns"] = reruns_json(*cell.reruns);
  put_if_known("rule_share", cell.rule_share);
  if (!cell.origin.device.empty()) object["origin"] = origin_json(cell.origin);
  if (!cell.origin.data.empty()) object["data"] = cell.origin.data;
  if (!cell.note.empty()) object["note"] = cell.note;
  return object;
}

CellResult cell_of(const io::JsonObject& object) {
  object.check_version(kCellVersion);
  CellResult cell{.arm = object.text("arm"),
                  .seed = object.whole("seed"),
                  .run = object.text("run"),
                  .steps = object.whole("steps"),
                  .loss = object.number("loss"),
                  .losses = {.low = object.number_if("loss_low"),
                             .trained = object.number_if("loss_trained"),
                             .train_tail = object.number("train_loss_tail")},
                  .share_mean = object.number("share_mean"),
                  .share_peak = object.number("share_peak"),
                  .high = {.mean = object.number("high_mean"),
                           .total = object.number_if("high_total"),
                           .cost = object.number_if("high_cost")},
                  .risks_per_thousand = object.number("risks_per_thousand"),
                  .admissions = object.count("admissions"),
                  .skipped_updates = object.whole("skipped_updates"),
                  .step_ms = object.number("step_ms"),
                  .units = object.whole("units"),
                  .rule_share = object.number_if("rule_share"),
                  .note = object.text_if("note").value_or("")};
  if (const auto origin = object.object_if("origin")) cell.origin = origin_of(*origin);
  cell.origin.data = object.text_if("data").value_or("");
  if (object.has("faults")) cell.detection = detection_of(object);
  if (const auto harm = object.object_if("harm")) cell.harm = harm_of(*harm);
  if (const auto shares = object.object_if("high_shares")) cell.high.shares = high_shares_of(*shares);
  if (const auto reruns = object.object_if("reruns")) cell.reruns = reruns_of(*reruns);
  return cell;
}

std::string write_cell(const CellResult& cell) { return cell_json(cell).dump(2) + "\n"; }

CellResult parse_cell_place(std::string_view text, const std::string& file) {
  return io::read_json_object(text, file, [](const io::JsonObject& object) -> CellResult {
    object.check_version(kCellVersion);
    const std::string arm = object.text("arm");
    const std::int64_t seed = object.whole_if("seed").value_or(0);
    return {.arm = arm,
            .seed = seed,
            .run = object.text_if("run").value_or("runs/" + arm + "-seed" + std::to_string(seed))};
  });
}

CellResult parse_cell(std::string_view text, const std::string& file) {
  return io::read_json_object(text, file, cell_of);
}

}  // namespace gnmr::lab
