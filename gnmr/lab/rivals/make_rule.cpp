// SPDX-License-Identifier: Apache-2.0
#include "gnmr/lab/rivals/make_rule.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/where.h>
#include <c10/core/GradMode.h>
#include <c10/core/ScalarType.h>

#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "gnmr/lab/rivals/adagc.h"
#include "gnmr/lab/rivals/olmo_skip.h"
#include "gnmr/lab/rivals/rule_options.h"
#include "gnmr/lab/rivals/stable_spam.h"
#include "gnmr/lab/rivals/zclip.h"
#include "gnmr/torch/squared_norm.h"

namespace gnmr::lab {
namespace {

using train::GradientAction;
using train::GradientView;

double norm_of_all(const GradientView& view) {
  double total = 0;
  for (const double square : view.squares) total += square;
  return std::sqrt(total);
}

GradientAction decide(ZClip& rule, const GradientView& view) {
  const std::optional<double> factor = rule.observe(norm_of_all(view));
  if (!factor) return {.skip = true, .coefficients = {}};
  GradientAction action{.coefficients = {}, .replaces_clipping = true};
  if (*factor != 1.0) action.coefficients.assign(view.squares.size(), *factor);
  return action;
}

GradientAction decide(AdaGc& rule, const GradientView& view) {
  std::vector<double> norms;
  for (const double square : view.squares) norms.push_back(std::sqrt(square));
  std::optional<std::vector<double>> factors = rule.observe(norms);
  if (!factors) return {.skip = true, .coefficients = {}};
  return {.coefficients = std::move(*factors), .replaces_clipping = true};
}

GradientAction decide(OlmoSkip& rule, const GradientView& view) {
  return {.skip = !rule.observe(view.loss, norm_of_all(view)), .coefficients = {}};
}

/// Gradients as torch has them.
class TorchElements final : public GradientElements {
 public:
  explicit TorchElements(std::span<const at::Tensor> gradients) : gradients_(gradients) {}

  double largest(std::size_t tensor) override {
    const at::Tensor& gradient = gradients_[tensor];
    if (gradient.numel() == 0) return 0;
    return at::linalg_vector_norm(gradient, std::numeric_limits<double>::infinity()).item<double>();
  }

  double scale_above(std::size_t tensor, double threshold, double factor) override {
    const at::Tensor& gradient = gradients_[tensor];
    // A threshold rounded to 8 bits would let elements pass.
    const at::Tensor wide = gradient.to(c10::promoteTypes(gradient.scalar_type(), at::kFloat));
    gradient.copy_(at::where(wide.abs().gt(threshold), wide.mul(factor), wide));
    were_changed_ = true;
    return nn::squared_norm(gradient);
  }

  bool were_changed() const { return were_changed_; }

 private:
  std::span<const at::Tensor> gradients_;
  bool were_changed_ = false;
};

GradientAction decide(StableSpam& rule, const GradientView& view) {
  const c10::AutoGradMode no_gradients(false);
  std::vector<char> is_absent;
  for (const at::Tensor& gradient : view.gradients) is_absent.push_back(gradient.defined() ? 0 : 1);
  TorchElements elements(view.gradients);
  std::optional<std::vector<double>> factors = rule.observe(view.squares, is_absent, elements);
  if (!factors) return {.skip = true, .coefficients = {}};
  return {.coefficients = std::move(*factors), .replaces_clipping = true, .gradients_changed = elements.were_changed()};
}

template <class Rule>
class RuleOnGradients final : public train::GradientRule {
 public:
  explicit RuleOnGradients(Rule rule) : rule_(std::move(rule)) {}

  GradientAction act(const GradientView& view) override { return decide(rule_, view); }
  std::string save() const override { return rule_.save(); }
  void restore(const std::string& bytes) override { rule_.restore(bytes); }

 private:
  Rule rule_;
};

template <class Rule>
std::unique_ptr<train::GradientRule> wrap(Rule rule) {
  return std::make_unique<RuleOnGradients<Rule>>(std::move(rule));
}

std::unique_ptr<train::GradientRule> make(const ZClipOptions& options) { return wrap(ZClip(options)); }
std::unique_ptr<train::GradientRule> make(const AdaGcOptions& options) { return wrap(AdaGc(options)); }
std::unique_ptr<train::GradientRule> make(const StableSpamOptions& options) { return wrap(StableSpam(options)); }
std::unique_ptr<train::GradientRule> make(const OlmoSkipOptions& options) { return wrap(OlmoSkip(options)); }

}  // namespace

std::unique_ptr<train::GradientRule> make_rule(std::string_view text) {
  return std::visit([](const auto& options) { return make(options); }, parse_rule(text));
}

}  // namespace gnmr::lab
