// SPDX-License-Identifier: Apache-2.0
#include "gnmr/report/run_info.h"

#include "gnmr/io/text_error.h"
#include "gnmr/report/json_document.h"

namespace gnmr::report {
namespace {

// Objects are followed one level down: `model.name`.
void collect_settings(const nlohmann::json& document, RunInfo& info) {
  for (const auto& [key, value] : document.items()) {
    if (key == "version") continue;
    if (const auto text = scalar_text(value)) info.settings.emplace_back(key, *text);
    if (!value.is_object()) continue;
    for (const auto& [inner_key, inner] : value.items()) {
      if (const auto text = scalar_text(inner)) info.settings.emplace_back(key + "." + inner_key, *text);
    }
  }
}

}  // namespace

RunInfo read_run_info(const std::string& path) {
  const nlohmann::json document = read_versioned_object(path);
  const JsonPlace place{document, path};
  RunInfo info;
  info.label = text_at(place, "label");
  info.recipe = text_at(place, "recipe");
  info.controller = text_at(place, "controller");
  info.faults = text_at(place, "faults");
  info.started = text_at(place, "started");
  info.steps = whole_at(place, "steps");
  info.seed = whole_at(place, "seed");
  info.budget = whole_at(place, "budget");
  if (const auto model = document.find("model"); model != document.end() && model->is_object()) {
    const JsonPlace inside{*model, path + ": model"};
    info.model = text_at(inside, "name");
    info.parameters = number_at(inside, "parameters");
  } else {
    info.model = text_at(place, "model");
  }
  collect_settings(document, info);
  return info;
}

}  // namespace gnmr::report
