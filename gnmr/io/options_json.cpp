// SPDX-License-Identifier: Apache-2.0
#include "gnmr/io/options_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "gnmr/core/error.h"
#include "gnmr/core/message_text.h"
#include "gnmr/io/json_text.h"
#include "gnmr/io/number_text.h"
#include "gnmr/io/whole_file.h"

namespace gnmr::io {
namespace {

constexpr std::string_view kPresetKey = "preset";
constexpr std::size_t kLargestOptionsFile = std::size_t{1} << 20;

[[noreturn]] void fail(const std::string& message) { throw Error("[options] " + message); }

// Takes the parser's events instead of a document, because a document has already forgotten repeated keys.
class OptionsHandler : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit OptionsHandler(std::string_view text) : text_(text) {}

  Options result(std::string_view preset) const {
    Options options = Options::preset(!preset.empty() ? preset
                                      : preset_       ? std::string_view(*preset_)
                                                      : kPresetNames[0]);
    for (std::size_t i = 0; i < kOptionCount; ++i) {
      if (values_[i]) set_option(options, option_specs()[i].name, *values_[i]);
    }
    validate(options);
    return options;
  }

  /// The options that the object names.
  std::vector<std::string> named() const {
    std::vector<std::string> names;
    for (std::size_t i = 0; i < kOptionCount; ++i) {
      if (values_[i]) names.emplace_back(option_specs()[i].name);
    }
    return names;
  }

  bool null() override { refuse("null"); }
  bool boolean(bool) override { refuse("a boolean"); }
  bool number_integer(std::int64_t value) override { return number(static_cast<double>(value)); }
  bool number_unsigned(std::uint64_t value) override { return number(static_cast<double>(value)); }
  bool number_float(double value, const std::string&) override { return number(value); }
  bool binary(nlohmann::json::binary_t&) override { refuse("binary"); }
  bool start_array(std::size_t) override { refuse("an array"); }
  bool end_array() override { return true; }
  bool end_object() override { return true; }

  bool string(std::string& text) override {
    if (!in_object_) refuse("a string");
    if (spec_index_) return word(text);
    if (std::find(kPresetNames.begin(), kPresetNames.end(), text) == kPresetNames.end()) {
      fail(fmt::format("`{}`: expected one of {}, got {}{}", kPresetKey, fmt::join(kPresetNames, ", "), in_quotes(text),
                       did_you_mean(text, kPresetNames)));
    }
    preset_ = text;
    return true;
  }

  bool start_object(std::size_t) override {
    if (in_object_) refuse("an object");
    in_object_ = true;
    return true;
  }

  bool key(std::string& name) override {
    key_ = name;
    spec_index_.reset();
    if (name == kPresetKey) {
      if (preset_) fail(fmt::format("`{}` is there twice", name));
      return true;
    }
    const OptionSpec* const spec = find_option(name);
    if (spec == nullptr) {
      std::vector<std::string_view> known{kPresetKey};
      for (const OptionSpec& one : option_specs()) known.push_back(one.name);
      fail(fmt::format("unknown option {}{}", in_quotes(name), did_you_mean(name, known)));
    }
    spec_index_ = static_cast<std::size_t>(spec - option_specs().data());
    if (values_[*spec_index_]) fail(fmt::format("option `{}` is there twice", name));
    return true;
  }

  bool parse_error(std::size_t, const std::string&, const nlohmann::json::exception& error) override {
    // The parser refuses 1e999 as out of range; the option must be named.
    if (error.id == 406 && spec_index_) fail(fmt::format("option `{}`: the number is not finite", key_));
    fail(json_error_text(error.what(), text_));
  }

 private:
  bool number(double value) {
    if (!in_object_ || !spec_index_ || spec().is_word()) refuse("a number");
    values_[*spec_index_] = value;
    return true;
  }

  bool word(const std::string& text) {
    const auto words = spec().range.words;
    const auto found = std::find(words.begin(), words.end(), text);
    if (found == words.end()) {
      refuse(spec().is_word() ? in_quotes(text) + did_you_mean(text, words) : "a string");
    }
    values_[*spec_index_] = static_cast<double>(found - words.begin());
    return true;
  }

  const OptionSpec& spec() const { return option_specs()[*spec_index_]; }

  [[noreturn]] void refuse(std::string_view what) const {
    if (!in_object_) fail(fmt::format("expected a JSON object of options, got {}", what));
    const std::string expected = !spec_index_ ? "a string" : spec().is_word() ? spec().range.description() : "a number";
    fail(fmt::format("option `{}`: expected {}, got {}", key_, expected, what));
  }

  std::string_view text_;  // all of it, for messages
  bool in_object_ = false;
  std::string key_;
  std::optional<std::size_t> spec_index_;  // of the key just read; empty for `preset`
  std::optional<std::string> preset_;
  std::array<std::optional<double>, kOptionCount> values_;
};

}  // namespace

Options read_options(std::string_view json_text, std::string_view preset, std::vector<std::string>* named) {
  OptionsHandler handler(json_text);
  nlohmann::json::sax_parse(json_text.begin(), json_text.end(), &handler);
  if (named != nullptr) *named = handler.named();
  return handler.result(preset);
}

Options read_options_file(const std::string& path, std::string_view preset, std::vector<std::string>* named) {
  const std::string text = read_whole_file(path, kLargestOptionsFile);
  try {
    return read_options(text, preset, named);
  } catch (const Error& error) {
    throw Error(path + ": " + error.what());
  }
}

std::string write_options(const Options& options) {
  std::string out;
  char separator = '{';
  for (const OptionSpec& spec : option_specs()) {
    out += separator;
    append_json_string(out, spec.name);
    out += ':';
    if (spec.is_word()) {
      append_json_string(out, spec.word_of(spec.get(options)));
    } else {
      append_json_number(out, spec.get(options));
    }
    separator = ',';
  }
  out += '}';
  return out;
}

std::string option_flag(std::string_view name) {
  std::string flag = "--" + std::string(name);
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

std::string option_text(const OptionSpec& spec, double value) {
  if (spec.is_word()) return std::string(spec.word_of(value));
  std::string text;
  append_number(text, value);
  return text;
}

std::string markdown_item(std::string_view text) {
  constexpr std::size_t kWidth = 118;
  std::string out = "-";
  std::size_t column = out.size();
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(' ', begin), text.size());
    if (column + 1 + (end - begin) > kWidth) {
      out += "\n ";
      column = 1;
    }
    out.append(" ").append(text.substr(begin, end - begin));
    column += 1 + (end - begin);
    begin = end + 1;
  }
  return out + "\n";
}

std::string options_markdown() {
  std::string out;
  for (const OptionSpec& spec : option_specs()) {
    out +=
        markdown_item(fmt::format("`{}` = {} (`paper`: {}), {}: {}", spec.name, option_text(spec, spec.default_value),
                                  option_text(spec, spec.paper_value), spec.range.description(), spec.help));
  }
  return out;
}

}  // namespace gnmr::io
