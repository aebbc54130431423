// SPDX-License-Identifier: Apache-2.0
// Everything here follows from the one declaration of the options: names, types, defaults, ranges, help.
#include "gnmr/core/options.h"

#include <deque>

#include "bind.h"
#include "gnmr/core/controller.h"
#include "gnmr/io/options_json.h"

namespace gnmr::python {
namespace {

/// Texts that nanobind refers to for as long as the process lives.
const char* kept(std::string text) {
  static std::deque<std::string> texts;
  return texts.emplace_back(std::move(text)).c_str();
}

const char* python_type(const OptionSpec& spec) {
  if (spec.is_word()) return "str";
  return spec.range.whole ? "int" : "float";
}

nb::object value_of(const OptionSpec& spec, double value) {
  if (spec.is_word()) {
    const std::string_view word = spec.word_of(value);
    return nb::str(word.data(), word.size());
  }
  if (spec.range.whole) return nb::int_(static_cast<std::int64_t>(value));
  return nb::float_(value);
}

void set(Options& options, std::string_view name, nb::handle value) {
  const bool is_number =
      (nb::isinstance<nb::int_>(value) || nb::isinstance<nb::float_>(value)) && !nb::isinstance<nb::bool_>(value);
  if (is_number) return set_option(options, name, nb::cast<double>(value));
  if (nb::isinstance<nb::str>(value)) {
    return set_option(options, name, std::string_view(nb::cast<std::string>(value)));
  }
  const OptionSpec* spec = find_option(name);
  const std::string expected = spec != nullptr ? spec->range.description() : "a number or a word";
  throw Error("option `" + std::string(name) + "`: expected " + expected + ", got " + nb::repr(value).c_str());
}

std::string documentation(const OptionSpec& spec) {
  return std::string(spec.help) + " (" + spec.range.description() + "; default " +
         io::option_text(spec, spec.default_value) + ")";
}

std::string constructor_signature() {
  std::string text = "def __init__(self, preset: str = 'default'";
  for (const OptionSpec& spec : option_specs()) {
    text += (&spec == option_specs().data() ? ", *, " : ", ") + std::string(spec.name) + ": " + python_type(spec) +
            " = ...";
  }
  return text + ") -> None";
}

void make(Options* self, std::string_view preset, const nb::kwargs& values) {
  Options options = Options::preset(preset);
  for (const auto [name, value] : values) set(options, nb::cast<std::string>(name), value);
  validate(options);
  new (self) Options(options);
}

nb::list specs() {
  nb::list all;
  for (const OptionSpec& spec : option_specs()) {
    nb::dict one;
    one["name"] = std::string(spec.name);
    one["default"] = value_of(spec, spec.default_value);
    one["paper"] = value_of(spec, spec.paper_value);
    one["range"] = spec.range.description();
    one["help"] = std::string(spec.help);
    all.append(one);
  }
  return all;
}

}  // namespace

void bind_options(nb::module_& module) {
  std::string text = "The controller's options. A value out of range, or an unknown name, is an Error that names it.\n";
  for (const OptionSpec& spec : option_specs()) text += "\n- " + std::string(spec.name) + ": " + documentation(spec);
  nb::class_<Options> options(module, "Options", kept(text));
  options.def("__init__", make, nb::sig(kept(constructor_signature())), "preset"_a = "default", "options"_a);
  for (const OptionSpec& spec : option_specs()) {
    options.def_prop_ro(
        spec.name.data(), [&spec](const Options& self) { return value_of(spec, spec.get(self)); },
        nb::sig(kept("def " + std::string(spec.name) + "(self) -> " + python_type(spec))), kept(documentation(spec)));
  }
  options
      .def(
          "__eq__", [](const Options& self, const Options& other) { return self == other; }, nb::is_operator(),
          nb::sig("def __eq__(self, other: object, /) -> bool"))
      .def("__hash__", [](const Options& self) { return nb::hash(nb::str(io::write_options(self).c_str())); })
      .def("__repr__", [](const Options& self) { return "Options(" + io::write_options(self) + ")"; })
      .def("to_json", &io::write_options, "All options as one line of JSON.")
      .def_static(
          "from_json", [](std::string_view text_of) { return io::read_options(text_of); }, "text"_a,
          "Options from a JSON object of option names and `preset`.");
  module.def(
      "refuse_without_effect",
      [](const Options& of, const std::vector<std::string>& named, bool can_rerun,
         const std::vector<double>& expected) {
        const Backend backend{
            .can_rerun = can_rerun, .sites = static_cast<std::uint32_t>(expected.size()), .expected_errors = expected};
        gnmr::refuse_without_effect(of, backend, named);
      },
      "options"_a, "named"_a, nb::kw_only(), "can_rerun"_a, "expected"_a,
      "Raises an Error for the first of these options, which the caller set, that has no effect. `can_rerun`: a step "
      "can run again; `expected`: the formats' own error at each site that is measured.");
  module.def("option_specs", specs, nb::sig("def option_specs() -> list[dict[str, object]]"),
             "Every option as it is declared: name, default, value in the preset `paper`, range, help.");
  module.def("options_markdown", io::options_markdown, "The table of all options, in Markdown.");
}

}  // namespace gnmr::python
