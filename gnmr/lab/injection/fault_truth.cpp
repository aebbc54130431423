// SPDX-License-Identifier: Apache-2.0
#include "gnmr/lab/injection/fault_truth.h"

#include <algorithm>

#include "gnmr/core/error.h"
#include "gnmr/io/csv_record.h"
#include "gnmr/io/json_text.h"

namespace gnmr::lab {
namespace {

const std::string& name_of(std::span<const std::string> layer_names, std::uint32_t layer) {
  if (layer >= layer_names.size()) throw Error("[faults] a fault is in a layer that has no name");
  return layer_names[layer];
}

/// Whether an oracle that has all the room it wants would have the fault's layer in recovery.
bool wanted(const PlannedFault& fault, std::int64_t lock_steps, std::int64_t step) {
  if (fault.layer == kNoLayer || step < fault.step_first) return false;
  // In whole locks: the one in which the step lies must have begun while the fault was there.
  const std::int64_t locks = (step - fault.step_first) / lock_steps;
  return locks * lock_steps <= fault.step_last - fault.step_first;
}

}  // namespace

std::string truth_text(std::span<const std::string> layer_names, std::span<const PlannedFault> faults,
                       std::int64_t run_steps) {
  for (const PlannedFault& fault : faults) {
    if (fault.layer != kNoLayer) name_of(layer_names, fault.layer);
  }
  std::string text = "step";
  for (const std::string& name : layer_names) {
    text += ',';
    io::append_csv_cell(text, name);
  }
  text += '\n';
  std::string cells;
  for (std::int64_t step = 1; step <= run_steps; ++step) {
    cells.assign(2 * layer_names.size(), ',');
    for (std::size_t layer = 0; layer < layer_names.size(); ++layer) cells[2 * layer + 1] = '0';
    for (const std::uint32_t layer : faulty_layers(faults, step)) cells[2 * std::size_t{layer} + 1] = '1';
    text += std::to_string(step) + cells + '\n';
  }
  return text;
}

std::string fault_list_text(std::span<const std::string> layer_names, std::span<const PlannedFault> faults,
                            double strength) {
  std::string text;
  for (const PlannedFault& fault : faults) {
    text += R"({"kind":"fault","fault":)";
    io::append_json_string(text, to_string(fault.kind));
    text += R"(,"site":)";
    io::append_json_string(text, to_string(site_of(fault.kind)));
    text += R"(,"layer":)";
    if (fault.layer == kNoLayer) {
      text += "null";
    } else {
      io::append_json_string(text, name_of(layer_names, fault.layer));
    }
    text += R"(,"first":)";
    io::append_json_number(text, fault.step_first);
    text += R"(,"last":)";
    io::append_json_number(text, fault.step_last);
    text += R"(,"transient":)";
    text += fault.transient ? "true" : "false";
    text += R"(,"strength":)";
    io::append_json_number(text, strength);
    text += "}\n";
  }
  return text;
}

std::vector<std::uint32_t> faulty_layers(std::span<const PlannedFault> faults, std::int64_t step) {
  std::vector<std::uint32_t> layers;
  for (const PlannedFault& fault : faults) {
    if (fault.step_first > step) break;  // they are in order
    if (fault.layer != kNoLayer && fault.covers(step)) layers.push_back(fault.layer);
  }
  std::sort(layers.begin(), layers.end());
  return layers;
}

std::vector<std::uint32_t> oracle_layers(std::span<const PlannedFault> faults, const OracleSettings& settings,
                                         std::int64_t step) {
  if (settings.lock_steps < 1) throw Error("[faults] expected the oracle's lock to be at least one step");
  std::vector<std::uint32_t> layers;
  for (const PlannedFault& fault : faults) {
    if (layers.size() >= settings.most || fault.step_first > step) break;
    if (!wanted(fault, settings.lock_steps, step)) continue;
    // A second fault in the lock of the first takes no more room.
    if (std::find(layers.begin(), layers.end(), fault.layer) == layers.end()) layers.push_back(fault.layer);
  }
  std::sort(layers.begin(), layers.end());
  return layers;
}

}  // namespace gnmr::lab
