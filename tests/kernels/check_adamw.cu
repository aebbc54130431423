// SPDX-License-Identifier: Apache-2.0
// The fused AdamW against its reference, step by step, and what a shut gate leaves alone.
#include <cmath>
#include <memory>

#include "core/random_run.h"
#include "gnmr/kernels/adamw_reference.h"
#include "kernels/check.h"

namespace gnmr::kernels::testing {
namespace {

using gnmr::testing::Random;

/// One tensor on the host or on the device: all that an update reads and writes, as bytes.
struct Parts {
  std::vector<std::byte> parameter, gradient, mean, square, steps;
};

struct PartsOnDevice {
  explicit PartsOnDevice(const Parts& parts)
      : parameter(parts.parameter),
        gradient(parts.gradient),
        mean(parts.mean),
        square(parts.square),
        steps(parts.steps) {}
  Parts get() const { return {parameter.get(), gradient.get(), mean.get(), square.get(), steps.get()}; }
  OnDevice<std::byte> parameter, gradient, mean, square, steps;
};

/// A tensor, where its elements begin in its arrays, and both copies.
struct Case {
  AdamWTensor shape;
  std::size_t offset;  // elements before the first: 1 makes it not aligned for four at a time
  Parts host = {};
  std::unique_ptr<PartsOnDevice> device = {};

  template <class Place>
  AdamWTensor at(Place&& place) const {
    AdamWTensor tensor = shape;
    tensor.parameter = place(0) + offset * bytes_of(shape.parameter_type);
    tensor.gradient = place(1) + offset * bytes_of(shape.gradient_type);
    tensor.mean = reinterpret_cast<float*>(place(2)) + offset;
    tensor.square = reinterpret_cast<float*>(place(3)) + offset;
    tensor.steps = reinterpret_cast<float*>(place(4));
    return tensor;
  }
  AdamWTensor on_device() const {
    return at([this](int part) {
      const OnDevice<std::byte>* const parts[] = {&device->parameter, &device->gradient, &device->mean, &device->square,
                                                  &device->steps};
      return parts[part]->data();
    });
  }
  AdamWTensor on_host() {
    return at([this](int part) {
      std::vector<std::byte>* const parts[] = {&host.parameter, &host.gradient, &host.mean, &host.square, &host.steps};
      return parts[part]->data();
    });
  }
};

void draw(Random& random, std::vector<std::byte>& bytes, ElementType type, double scale) {
  for (std::size_t i = 0; i < bytes.size() / bytes_of(type); ++i) {
    store_element(bytes.data(), i, type, scale * random.normal());
  }
}

std::vector<Case> make_cases(Random& random, bool small) {
  std::vector<Case> cases;
  for (const ElementType parameter : {ElementType::float32, ElementType::bfloat16}) {
    for (const ElementType gradient : {ElementType::float32, ElementType::bfloat16}) {
      for (const std::uint64_t count : {1, 3, 4, 1023, 8192, 8193, small ? 9000 : 100'003}) {
        for (const std::size_t offset : {0, 1, 4}) {
          Case one{.shape = {.count = count,
                             .parameter_type = parameter,
                             .gradient_type = gradient,
                             .weight_decay = random.pick({0.0, 0.1})},
                   .offset = offset};
          const std::size_t elements = count + offset + 3;
          one.host = {.parameter = std::vector<std::byte>(elements * bytes_of(parameter)),
                      .gradient = std::vector<std::byte>(elements * bytes_of(gradient)),
                      .mean = std::vector<std::byte>(elements * sizeof(float)),
                      .square = std::vector<std::byte>(elements * sizeof(float)),
                      .steps = std::vector<std::byte>(sizeof(float))};
          draw(random, one.host.parameter, parameter, 0.5);
          one.device = std::make_unique<PartsOnDevice>(one.host);
          cases.push_back(std::move(one));
        }
      }
    }
  }
  return cases;
}

std::vector<AdamWTensor> tensors_on_device(const std::vector<Case>& cases) {
  std::vector<AdamWTensor> tensors;
  for (const Case& one : cases) tensors.push_back(one.on_device());
  return tensors;
}

/// Where the device's result is further from the reference than rounding explains; `old` is from before the step.
std::string difference(Case& expected, const Parts& found, const Parts& old, double learning_rate) {
  const AdamWTensor want = expected.on_host();
  Case got{.shape = expected.shape, .offset = expected.offset, .host = found};
  Case before{.shape = expected.shape, .offset = expected.offset, .host = old};
  const AdamWTensor have = got.on_host();
  const AdamWTensor had = before.on_host();
  if (*have.steps != *want.steps) return "steps";
  const bool is_short = want.parameter_type == ElementType::bfloat16;
  for (std::size_t i = 0; i < want.count; ++i) {
    const double gradient = std::abs(load_element(had.gradient, i, had.gradient_type));
    const double mean_scale = std::abs(static_cast<double>(had.mean[i])) + gradient;
    if (!(std::abs(have.mean[i] - want.mean[i]) <= 2e-7 * mean_scale)) return "mean " + std::to_string(i);
    if (!(std::abs(have.square[i] - want.square[i]) <= 5e-7 * want.square[i])) return "square " + std::to_string(i);
    const double parameter = load_element(want.parameter, i, want.parameter_type);
    const double off = std::abs(load_element(have.parameter, i, have.parameter_type) - parameter);
    const double rounding = is_short ? 0x1p-7 * std::abs(parameter) + 1e-30 : 3e-7 * std::abs(parameter);
    if (!(off <= rounding + 5e-5 * learning_rate)) return "parameter " + std::to_string(i);
  }
  return "";
}

/// What lies before and behind the elements.
bool same_margins(const Case& one, const Parts& a, const Parts& b) {
  const auto same = [&one](const std::vector<std::byte>& x, const std::vector<std::byte>& y, std::size_t size) {
    const std::size_t first = one.offset * size;
    const std::size_t last = first + one.shape.count * size;
    return std::memcmp(x.data(), y.data(), first) == 0 &&
           std::memcmp(x.data() + last, y.data() + last, x.size() - last) == 0;
  };
  return same(a.parameter, b.parameter, bytes_of(one.shape.parameter_type)) && same(a.mean, b.mean, sizeof(float)) &&
         same(a.square, b.square, sizeof(float));
}

void check_steps(Checks& checks) {
  Random random(11);
  std::vector<Case> cases = make_cases(random, checks.is_small());
  AdamW adamw;
  OnDevice<Gate> gate(1);
  std::string trouble;
  bool moved = false;
  const int steps = checks.is_small() ? 3 : 20;
  for (int step = 0; step < steps && trouble.empty(); ++step) {
    const Gate open{.total_norm = 1, .coefficient = step % 3 == 0 ? 1.0f : 0.37f, .apply = 1};
    const AdamWSettings settings{.learning_rate = 1e-2 / (step + 1), .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8};
    gate.put({open});
    for (Case& one : cases) {
      draw(random, one.host.gradient, one.shape.gradient_type, 1e-2);
      one.device->gradient.put(one.host.gradient);
    }
    const bool anew = adamw.step(tensors_on_device(cases), settings, gate.data(), nullptr);
    moved = moved || anew != (step == 0);
    must(cudaDeviceSynchronize());
    for (std::size_t i = 0; i < cases.size() && trouble.empty(); ++i) {
      Case& one = cases[i];
      const Parts old = one.host;
      const AdamWTensor tensor = one.on_host();
      reference_adamw({&tensor, 1}, settings, open);
      Parts found = one.device->get();
      trouble = difference(one, found, old, settings.learning_rate);
      if (trouble.empty() && !same_margins(one, found, old)) trouble = "elements around it";
      if (!trouble.empty()) trouble += " of tensor " + std::to_string(i) + " in step " + std::to_string(step);
      one.host = std::move(found);  // each step is compared by itself
    }
  }
  checks.report("AdamW over " + std::to_string(steps) + " steps, " + std::to_string(cases.size()) + " tensors",
                trouble);
  checks.expect("AdamW's table is made anew only where a tensor changed", !moved);
}

void check_shut_gate(Checks& checks) {
  Random random(12);
  std::vector<Case> cases = make_cases(random, true);
  for (Case& one : cases) {
    draw(random, one.host.gradient, one.shape.gradient_type, NAN);
    one.device->gradient.put(one.host.gradient);
  }
  AdamW adamw;
  OnDevice<Gate> gate(1);
  gate.put({{.total_norm = NAN, .coefficient = 0, .apply = 0}});
  std::vector<AdamWTensor> tensors = tensors_on_device(cases);
  adamw.step(tensors, {}, gate.data(), nullptr);
  // Addresses that nothing lies at: behind a shut gate nobody goes there.
  for (AdamWTensor& tensor : tensors) tensor.gradient = reinterpret_cast<const void*>(std::uintptr_t{1} << 60);
  adamw.step(tensors, {}, gate.data(), nullptr);
  const cudaError_t status = cudaDeviceSynchronize();
  checks.report("AdamW does not read gradients behind a shut gate",
                status == cudaSuccess ? "" : cudaGetErrorString(status));
  bool same = true;
  for (const Case& one : cases) {
    const Parts found = one.device->get();
    same = same && same_bits(found.parameter, one.host.parameter) && same_bits(found.mean, one.host.mean) &&
           same_bits(found.square, one.host.square) && same_bits(found.steps, one.host.steps);
  }
  checks.expect("AdamW leaves every bit alone behind a shut gate", same);
}

void check_missing_gradient(Checks& checks) {
  Random random(13);
  std::vector<Case> cases = make_cases(random, true);
  AdamW adamw;
  OnDevice<Gate> gate(1);
  gate.put({{.total_norm = 1, .coefficient = 1, .apply = 1}});
  std::vector<AdamWTensor> tensors = tensors_on_device(cases);
  for (std::size_t i = 0; i < tensors.size(); i += 2) tensors[i].gradient = nullptr;
  adamw.step(tensors, {}, gate.data(), nullptr);
  adamw.step({}, {}, gate.data(), nullptr);
  must(cudaDeviceSynchronize());
  bool good = true;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    float steps;
    std::memcpy(&steps, cases[i].device->steps.get().data(), sizeof steps);
    good = good && steps == (i % 2 == 0 ? 0.0f : 1.0f);
    good = good && (i % 2 != 0 || same_bits(cases[i].device->parameter.get(), cases[i].host.parameter));
  }
  checks.expect("AdamW passes over tensors without a gradient", good);
}

}  // namespace

void check_adamw(Checks& checks) {
  check_steps(checks);
  check_shut_gate(checks);
  check_missing_gradient(checks);
}

}  // namespace gnmr::kernels::testing
