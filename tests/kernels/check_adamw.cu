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
  std::vector<std::byte> parameter, gradient, mean, square, steps, master;
};

struct PartsOnDevice {
  explicit PartsOnDevice(const Parts& parts)
      : parameter(parts.parameter),
        gradient(parts.gradient),
        mean(parts.mean),
        square(parts.square),
        steps(parts.steps),
        master(parts.master) {}
  Parts get() const { return {parameter.get(), gradient.get(), mean.get(), square.get(), steps.get(), master.get()}; }
  OnDevice<std::byte> parameter, gradient, mean, square, steps, master;
};

/// A tensor, where its elements begin in its arrays, and both copies.
struct Case {
  AdamWTensor shape;
  std::size_t offset;  // elements before the first: 1 makes it not aligned for four at a time
  bool has_master = false;
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
    if (has_master) tensor.master = reinterpret_cast<float*>(place(5)) + offset;
    return tensor;
  }
  AdamWTensor on_device() const {
    return at([this](int part) {
      const OnDevice<std::byte>* const parts[] = {&device->parameter, &device->gradient, &device->mean,
                                                  &device->square,    &device->steps,    &device->master};
      return parts[part]->data();
    });
  }
  AdamWTensor on_host() {
    return at([this](int part) {
      std::vector<std::byte>* const parts[] = {&host.parameter, &host.gradient, &host.mean,
                                               &host.square,    &host.steps,    &host.master};
      return parts[part]->data();
    });
  }
};

void draw(Random& random, std::vector<std::byte>& bytes, ElementType type, double scale) {
  for (std::size_t i = 0; i < bytes.size() / bytes_of(type); ++i) {
    store_element(bytes.data(), i, type, scale * random.normal());
  }
}

/// A tensor with its values drawn; beside a master copy the parameter is NaN, which nobody reads.
Case make_case(Random& random, const AdamWTensor& shape, std::size_t offset, bool has_master) {
  Case one{.shape = shape, .offset = offset, .has_master = has_master};
  const std::size_t elements = shape.count + offset + 3;
  one.host = {.parameter = std::vector<std::byte>(elements * bytes_of(shape.parameter_type), std::byte{0xff}),
              .gradient = std::vector<std::byte>(elements * bytes_of(shape.gradient_type)),
              .mean = std::vector<std::byte>(elements * sizeof(float)),
              .square = std::vector<std::byte>(elements * sizeof(float)),
              .steps = std::vector<std::byte>(sizeof(float)),
              .master = std::vector<std::byte>(has_master ? elements * sizeof(float) : 0)};
  if (has_master) {
    draw(random, one.host.master, ElementType::float32, 0.5);
  } else {
    draw(random, one.host.parameter, shape.parameter_type, 0.5);
  }
  one.device = std::make_unique<PartsOnDevice>(one.host);
  return one;
}

std::vector<Case> make_cases(Random& random, bool small) {
  struct Kind {
    ElementType parameter;
    bool has_master;
  };
  constexpr Kind kKinds[] = {
      {ElementType::float32, false}, {ElementType::bfloat16, false}, {ElementType::bfloat16, true}};
  std::vector<Case> cases;
  for (const Kind& kind : kKinds) {
    for (const ElementType gradient : {ElementType::float32, ElementType::bfloat16}) {
      for (const std::uint64_t count : {1, 3, 4, 1023, 8192, 8193, small ? 9000 : 100'003}) {
        for (const std::size_t offset : {0, 1, 4}) {
          const AdamWTensor shape{.count = count,
                                  .parameter_type = kind.parameter,
                                  .gradient_type = gradient,
                                  .weight_decay = random.pick({0.0, 0.1})};
          cases.push_back(make_case(random, shape, offset, kind.has_master));
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
  Case got{.shape = expected.shape, .offset = expected.offset, .has_master = expected.has_master, .host = found};
  Case before{.shape = expected.shape, .offset = expected.offset, .has_master = expected.has_master, .host = old};
  const AdamWTensor have = got.on_host();
  const AdamWTensor had = before.on_host();
  if (*have.steps != *want.steps) return "steps";
  const bool is_short = want.parameter_type == ElementType::bfloat16;
  for (std::size_t i = 0; i < want.count; ++i) {
    const double gradient = std::abs(load_element(had.gradient, i, had.gradient_type));
    const double mean_scale = std::abs(static_cast<double>(had.mean[i])) + gradient;
    if (!(std::abs(have.mean[i] - want.mean[i]) <= 2e-7 * mean_scale)) return "mean " + std::to_string(i);
    if (!(std::abs(have.square[i] - want.square[i]) <= 5e-7 * want.square[i])) return "square " + std::to_string(i);
    if (want.master != nullptr) {
      const double off = std::abs(static_cast<double>(have.master[i]) - want.master[i]);
      if (!(off <= 3e-7 * std::abs(want.master[i]) + 5e-5 * learning_rate)) return "master " + std::to_string(i);
      const std::uint16_t rounded = bfloat16_of(have.master[i]);
      if (static_cast<const std::uint16_t*>(have.parameter)[i] != rounded) return "rounding " + std::to_string(i);
      continue;
    }
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
         same(a.square, b.square, sizeof(float)) && (!one.has_master || same(a.master, b.master, sizeof(float)));
}

void check_steps(Checks& checks) {
  Random random(11);
  std::vector<Case> cases = make_cases(random, checks.is_small());
  AdamW adamw;
  OnDevice<Gate> gate(1);
  OnDevice<double> learning_rate(1);
  std::string trouble;
  bool moved = false;
  const int steps = checks.is_small() ? 3 : 20;
  for (int step = 0; step < steps && trouble.empty(); ++step) {
    const Gate open{.total_norm = 1, .coefficient = step % 3 == 0 ? 1.0f : 0.37f, .apply = 1};
    const AdamWSettings settings{.learning_rate = 1e-2 / (step + 1), .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8};
    // Every other step takes the same number from the device.
    AdamWSettings on_device = settings;
    if (step % 2 != 0) {
      learning_rate.put({settings.learning_rate});
      on_device.learning_rate = 777;
      on_device.device_learning_rate = learning_rate.data();
    }
    gate.put({open});
    for (Case& one : cases) {
      draw(random, one.host.gradient, one.shape.gradient_type, 1e-2);
      one.device->gradient.put(one.host.gradient);
    }
    const bool anew = adamw.step(tensors_on_device(cases), on_device, gate.data(), nullptr);
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

/// A step that is captured once takes the learning rate that is set before each replay.
void check_captured(Checks& checks) {
  Random random(14);
  const AdamWTensor shape{.count = 1000, .weight_decay = 0.1};
  Case one = make_case(random, shape, 0, false);
  draw(random, one.host.gradient, ElementType::float32, 1e-2);
  one.device->gradient.put(one.host.gradient);
  AdamW adamw;
  OnDevice<Gate> gate(1);
  const Gate open{.total_norm = 1, .coefficient = 1, .apply = 1};
  gate.put({open});
  const AdamWTensor tensor = one.on_device();
  OnDevice<double> number(1);
  const AdamWSettings settings{.device_learning_rate = number.data()};
  cudaStream_t stream = nullptr;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t captured = nullptr;
  must(cudaDeviceSynchronize());  // what was put is there, whatever the stream
  must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  std::string trouble;
  for (int step = 0; step < 4 && trouble.empty(); ++step) {
    const double learning_rate = 1e-2 / (step + 1);
    number.put({learning_rate});
    must(cudaDeviceSynchronize());
    if (step == 1) {
      must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
      adamw.step({&tensor, 1}, settings, gate.data(), stream);
      must(cudaStreamEndCapture(stream, &graph));
      must(cudaGraphInstantiate(&captured, graph, 0));
    }
    if (step == 0) {
      adamw.step({&tensor, 1}, settings, gate.data(), stream);  // makes the table
    } else {
      must(cudaGraphLaunch(captured, stream));
    }
    must(cudaStreamSynchronize(stream));
    const Parts old = one.host;
    const AdamWTensor on_host = one.on_host();
    reference_adamw({&on_host, 1}, {.learning_rate = learning_rate}, open);
    Parts found = one.device->get();
    trouble = difference(one, found, old, learning_rate);
    if (!trouble.empty()) trouble += " in step " + std::to_string(step);
    one.host = std::move(found);
  }
  cudaGraphExecDestroy(captured);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
  checks.report("AdamW in a captured graph, with a learning rate that changes", trouble);
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
           same_bits(found.square, one.host.square) && same_bits(found.steps, one.host.steps) &&
           same_bits(found.master, one.host.master);
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
  check_captured(checks);
  check_shut_gate(checks);
  check_missing_gradient(checks);
}

}  // namespace gnmr::kernels::testing
