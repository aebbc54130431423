// SPDX-License-Identifier: Apache-2.0
// JSON documents in which no object has a key twice: a document in memory keeps only one of them.
//
// Goals: time that is linear in the text. The library's own parser with a callback is not: behind each value it walks
// through all values beside it. Non-goals: writing. Only for sources that have nlohmann/json.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

namespace gnmr::io {

/// Looks at a text without making a document of it, and calls `on_repeat(key)` for a key that is there twice.
template <typename Json, typename OnRepeat>
class RepeatedKeyFinder : public nlohmann::json_sax<Json> {
 public:
  using string_t = typename Json::string_t;

  explicit RepeatedKeyFinder(OnRepeat on_repeat) : on_repeat_(std::move(on_repeat)) {}

  bool start_object(std::size_t) override {
    if (depth_ == open_.size()) open_.emplace_back();
    open_[depth_++].clear();
    return true;
  }
  bool key(string_t& key) override {
    if (!open_[depth_ - 1].insert(key).second) on_repeat_(key);
    return true;
  }
  bool end_object() override {
    --depth_;
    return true;
  }

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(typename Json::number_integer_t) override { return true; }
  bool number_unsigned(typename Json::number_unsigned_t) override { return true; }
  bool number_float(typename Json::number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(typename Json::binary_t&) override { return true; }
  bool start_array(std::size_t) override { return true; }
  bool end_array() override { return true; }
  bool parse_error(std::size_t, const std::string&, const nlohmann::json::exception&) override { return false; }

 private:
  OnRepeat on_repeat_;
  std::vector<std::unordered_set<string_t>> open_;  // the keys so far of each object that is open
  std::size_t depth_ = 0;
};

/// Parses `text`; `on_repeat(key)` must throw. Other exceptions are those of the library.
template <typename Json, typename OnRepeat>
Json parse_unique(std::string_view text, OnRepeat on_repeat) {
  RepeatedKeyFinder<Json, OnRepeat> finder(std::move(on_repeat));
  Json::sax_parse(text, &finder);  // what is wrong with the text is thrown below
  return Json::parse(text);
}

}  // namespace gnmr::io
