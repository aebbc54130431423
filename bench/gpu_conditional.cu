// SPDX-License-Identifier: Apache-2.0
// gnmr_gpu_conditional: choices inside a CUDA graph that the device makes (conditional nodes), against a graph without
// choices and against graphs that the host chooses.
//
// A choice is between two casts of a matrix to FP8, as stand-ins for two paths: `tile`, which is one kernel, and `row`,
// which is a memset and two. A kernel reads a flag in device memory and sets the condition. Seven choices are a block's
// linear layers, 280 those of LLaMA-2 13B. Times are medians between CUDA events; before each timed run a gigabyte is
// written, so that caches hold nothing and the host is ahead of the device.
#include <cooperative_groups.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/gpu/device_clock.h"
#include "gnmr/kernels/casts.h"
#include "gnmr/kernels/device.h"
#include "gnmr/kernels/tile_product.h"

namespace gnmr::bench {
namespace {

using namespace gnmr::kernels;

constexpr unsigned kPaths = 2;
constexpr cudaStreamCaptureMode kMode = cudaStreamCaptureModeThreadLocal;

enum class Kind { plain, flags, two_ifs, if_else, one_switch };

/// Sets a node's condition to the flag; that of `other`, where there is one, to its opposite.
__global__ void set_condition(cudaGraphConditionalHandle handle, bool has_other, cudaGraphConditionalHandle other,
                              const unsigned* flag) {
  cudaGraphSetConditional(handle, *flag);
  if (has_other) cudaGraphSetConditional(other, *flag == 0 ? 1u : 0u);
}

/// The same without a condition: what the kernel alone costs.
__global__ void read_flag(const unsigned* flag, unsigned* sum) { *sum += *flag; }

__global__ void count(unsigned* counter) { *counter += 1; }

__global__ void wait_for_all() { cooperative_groups::this_grid().sync(); }

double milliseconds_of(const std::function<void()>& work) { return microseconds_of(work) / 1000; }

/// A matrix and its two casts.
class Casts {
 public:
  Casts(std::uint64_t rows, std::uint64_t columns)
      : matrix_(rows * columns * 2),
        codes_(2 * rows * columns),
        scales_(2 * sizeof(float) * (rows + columns) * (1 + (rows > columns ? rows : columns) / 128)),
        workspace_((rows + columns + 64) * sizeof(float)),
        task_{.matrix = matrix_.as(), .rows = rows, .columns = columns} {
    must(cudaMemset(matrix_.as(), 0x3c, rows * columns * 2));
    task_.by_rows = {.codes = codes_.as<std::uint8_t>(), .scales = scales_.as<float>()};
    const std::size_t half = sizeof(float) * (rows + columns) * (1 + (rows > columns ? rows : columns) / 128);
    task_.by_columns = {.codes = codes_.as<std::uint8_t>(rows * columns), .scales = scales_.as<float>(half)};
  }

  void run(unsigned path, cudaStream_t stream) const {
    CastTask task = task_;
    task.groups = path == 0 ? CastGroups::tile : CastGroups::row;
    cast_to_fp8(task, workspace_.as(), stream);
  }

 private:
  Memory matrix_, codes_, scales_, workspace_;
  CastTask task_;
};

/// A graph that can be launched.
class Launchable {
 public:
  explicit Launchable(cudaGraph_t graph) : graph_(graph) {
    std::size_t before = 0;
    std::size_t after = 0;
    std::size_t total = 0;
    must(cudaDeviceSynchronize());
    must(cudaMemGetInfo(&before, &total));
    instantiate_ms = milliseconds_of([&] {
      must(cudaGraphInstantiate(&exec_, graph_, 0));
      must(cudaGraphUpload(exec_, nullptr));
      must(cudaDeviceSynchronize());
    });
    must(cudaMemGetInfo(&after, &total));
    megabytes = before > after ? static_cast<double>(before - after) / 1e6 : 0;
  }
  Launchable(const Launchable&) = delete;
  Launchable& operator=(const Launchable&) = delete;
  ~Launchable() {
    cudaGraphExecDestroy(exec_);
    cudaGraphDestroy(graph_);
  }
  void launch() const { must(cudaGraphLaunch(exec_, nullptr)); }

  double instantiate_ms = 0;
  double megabytes = 0;

 private:
  cudaGraph_t graph_;
  cudaGraphExec_t exec_ = nullptr;
};

/// Captures work into a graph that is there, behind nothing.
void capture_into(cudaGraph_t graph, cudaStream_t stream, const std::function<void()>& work) {
  must(cudaStreamBeginCaptureToGraph(stream, graph, nullptr, nullptr, 0, kMode));
  cudaGraph_t same = nullptr;
  try {
    work();
  } catch (...) {
    cudaStreamEndCapture(stream, &same);
    cudaGetLastError();
    throw;
  }
  must(cudaStreamEndCapture(stream, &same));
}

struct Conditional {
  cudaGraphNode_t node;
  std::vector<cudaGraph_t> bodies;
};

/// A conditional node behind another one.
Conditional add_conditional(cudaGraph_t graph, cudaGraphNode_t behind, cudaGraphConditionalHandle handle,
                            cudaGraphConditionalNodeType type, unsigned bodies) {
  cudaGraphNodeParams params = {};
  params.type = cudaGraphNodeTypeConditional;
  params.conditional.handle = handle;
  params.conditional.type = type;
  params.conditional.size = bodies;
  Conditional made{};
  const cudaGraphNode_t* const first = behind == nullptr ? nullptr : &behind;
#if CUDART_VERSION >= 13000
  must(cudaGraphAddNode(&made.node, graph, first, nullptr, behind == nullptr ? 0 : 1, &params));
#else
  must(cudaGraphAddNode(&made.node, graph, first, behind == nullptr ? 0 : 1, &params));
#endif
  made.bodies.assign(params.conditional.phGraph_out, params.conditional.phGraph_out + bodies);
  return made;
}

/// The kernel that sets a condition, or two.
cudaGraphNode_t add_set_condition(cudaGraph_t graph, cudaGraphNode_t behind, cudaGraphConditionalHandle handle,
                                  const cudaGraphConditionalHandle* opposite, const unsigned* flag) {
  bool has_other = opposite != nullptr;
  cudaGraphConditionalHandle other = has_other ? *opposite : 0;
  void* arguments[] = {&handle, &has_other, &other, &flag};
  cudaKernelNodeParams params = {};
  params.func = reinterpret_cast<void*>(&set_condition);
  params.gridDim = dim3(1);
  params.blockDim = dim3(1);
  params.kernelParams = arguments;
  cudaGraphNode_t node = nullptr;
  must(cudaGraphAddKernelNode(&node, graph, behind == nullptr ? nullptr : &behind, behind == nullptr ? 0 : 1, &params));
  return node;
}

cudaGraphConditionalHandle new_handle(cudaGraph_t graph) {
  cudaGraphConditionalHandle handle = 0;
  must(cudaGraphConditionalHandleCreate(&handle, graph, 0, cudaGraphCondAssignDefault));
  return handle;
}

/// What a graph is made of: `body(path, stream)` is one path of a choice.
struct Plan {
  unsigned choices;
  const unsigned* flags;  // on the device, one a choice: the path
  unsigned* sum;
  unsigned path;  // that of graphs without choices
  std::function<void(unsigned, cudaStream_t)> body;
};

/// One graph with all choices, one behind the other.
cudaGraph_t build(Kind kind, const Plan& plan, cudaStream_t stream) {
  cudaGraph_t graph = nullptr;
  if (kind == Kind::plain || kind == Kind::flags) {
    must(cudaStreamBeginCapture(stream, kMode));
    for (unsigned i = 0; i < plan.choices; ++i) {
      if (kind == Kind::flags) read_flag<<<1, 1, 0, stream>>>(plan.flags + i, plan.sum);
      plan.body(plan.path, stream);
    }
    must(cudaStreamEndCapture(stream, &graph));
    return graph;
  }
  must(cudaGraphCreate(&graph, 0));
  cudaGraphNode_t last = nullptr;
  for (unsigned i = 0; i < plan.choices; ++i) {
    const cudaGraphConditionalHandle handle = new_handle(graph);
    const bool has_other = kind == Kind::two_ifs;
    const cudaGraphConditionalHandle other = has_other ? new_handle(graph) : 0;
    last = add_set_condition(graph, last, handle, has_other ? &other : nullptr, plan.flags + i);
    if (kind == Kind::two_ifs) {
      for (const unsigned path : {1u, 0u}) {
        const Conditional choice = add_conditional(graph, last, path == 1 ? handle : other, cudaGraphCondTypeIf, 1);
        capture_into(choice.bodies[0], stream, [&] { plan.body(path, stream); });
        last = choice.node;
      }
      continue;
    }
    const bool is_if = kind == Kind::if_else;
    const Conditional choice =
        add_conditional(graph, last, handle, is_if ? cudaGraphCondTypeIf : cudaGraphCondTypeSwitch, kPaths);
    for (unsigned path = 0; path < kPaths; ++path) {
      // An IF's first body is that of a condition that is not 0.
      capture_into(choice.bodies[is_if ? 1 - path : path], stream, [&] { plan.body(path, stream); });
    }
    last = choice.node;
  }
  return graph;
}

const char* name_of(Kind kind) {
  switch (kind) {
    case Kind::plain:
      return "one graph, no choices";
    case Kind::flags:
      return "the same, flags read";
    case Kind::two_ifs:
      return "two IF nodes a choice";
    case Kind::if_else:
      return "IF/ELSE";
    case Kind::one_switch:
      return "SWITCH";
  }
  return "";
}

/// Whether the device takes the path that its flags say, also after they have changed.
void check_choices(Kind kind, cudaStream_t stream) {
  constexpr unsigned kChoices = 7;
  const Memory flags(kChoices * sizeof(unsigned));
  const Memory counters(kPaths * sizeof(unsigned));
  const Plan plan{
      .choices = kChoices,
      .flags = flags.as<unsigned>(),
      .sum = nullptr,
      .path = 0,
      .body = [&](unsigned path, cudaStream_t on) { count<<<1, 1, 0, on>>>(counters.as<unsigned>() + path); }};
  const Launchable graph(build(kind, plan, stream));
  for (const unsigned ones : {3u, 0u, 7u}) {
    std::vector<unsigned> values(kChoices, 0);
    for (unsigned i = 0; i < ones; ++i) values[i * 5 % kChoices] = 1;
    must(cudaMemcpy(flags.as(), values.data(), kChoices * sizeof(unsigned), cudaMemcpyHostToDevice));
    must(cudaMemset(counters.as(), 0, kPaths * sizeof(unsigned)));
    graph.launch();
    unsigned found[kPaths] = {};
    must(cudaMemcpy(found, counters.as(), sizeof found, cudaMemcpyDeviceToHost));
    if (found[0] != kChoices - ones || found[1] != ones) {
      throw std::runtime_error(std::string(name_of(kind)) + ": " + std::to_string(found[0]) + " and " +
                               std::to_string(found[1]) + " bodies ran, expected " + std::to_string(kChoices - ones) +
                               " and " + std::to_string(ones));
    }
  }
}

struct Row {
  std::string name = {};
  bool is_conditional = false;
  double ms[kPaths] = {};  // with all flags on one path
  double instantiate_ms = 0;
  double megabytes = 0;
};

/// All ways to make these choices, timed in turn.
std::vector<Row> measure(Clock& clock, const Casts& casts, unsigned choices, const std::vector<Kind>& kinds,
                         cudaStream_t stream) {
  const Memory flags(choices * sizeof(unsigned));
  const Memory sum(sizeof(unsigned));
  std::vector<Row> rows;
  for (unsigned path = 0; path < kPaths; ++path) {
    const std::vector<unsigned> values(choices, path);
    must(cudaMemcpy(flags.as(), values.data(), choices * sizeof(unsigned), cudaMemcpyHostToDevice));
    Plan plan{.choices = choices,
              .flags = flags.as<unsigned>(),
              .sum = sum.as<unsigned>(),
              .path = path,
              .body = [&](unsigned which, cudaStream_t on) { casts.run(which, on); }};
    std::vector<std::unique_ptr<Launchable>> graphs;
    std::vector<std::function<void()>> works;
    std::vector<std::string> names;
    for (const Kind kind : kinds) {
      graphs.push_back(std::make_unique<Launchable>(build(kind, plan, stream)));
      names.push_back(name_of(kind));
      works.push_back([graph = graphs.back().get()] { graph->launch(); });
    }
    plan.choices = 1;
    const Launchable one(build(Kind::plain, plan, stream));
    names.push_back("a graph a choice, chosen by the host");
    works.push_back([&] {
      for (unsigned i = 0; i < choices; ++i) one.launch();
    });
    names.push_back("no graph, chosen by the host");
    works.push_back([&] {
      for (unsigned i = 0; i < choices; ++i) casts.run(path, nullptr);
    });
    const std::vector<double> times = clock.medians_ms(works);
    rows.resize(works.size());
    for (std::size_t i = 0; i < works.size(); ++i) {
      rows[i].name = names[i];
      rows[i].is_conditional = i < kinds.size() && kinds[i] != Kind::plain && kinds[i] != Kind::flags;
      rows[i].ms[path] = times[i];
      if (i < graphs.size() && path == 0) {
        rows[i].instantiate_ms = graphs[i]->instantiate_ms;
        rows[i].megabytes = graphs[i]->megabytes;
      }
    }
  }
  return rows;
}

/// Prints the table; microseconds that a choice of the best kind costs beyond the graph without choices.
double report(const std::vector<Row>& rows, std::uint64_t matrix_rows, std::uint64_t matrix_columns, unsigned choices) {
  std::printf(
      "\n%u choices, each a cast of %llu x %llu bfloat16\n\n| way | all `tile`, ms | µs a choice more | "
      "all `row`, ms | µs a choice more | made in, ms | MB |\n|---|---|---|---|---|---|---|\n",
      choices, static_cast<unsigned long long>(matrix_rows), static_cast<unsigned long long>(matrix_columns));
  double best = 1e30;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Row& row = rows[i];
    const double more[kPaths] = {1000 * (row.ms[0] - rows[0].ms[0]) / choices,
                                 1000 * (row.ms[1] - rows[0].ms[1]) / choices};
    std::printf("| %s | %.3f | %.2f | %.3f | %.2f | %.2f | %.1f |\n", row.name.c_str(), row.ms[0], more[0], row.ms[1],
                more[1], row.instantiate_ms, row.megabytes);
    if (row.is_conditional) best = std::min(best, std::max(more[0], more[1]));
  }
  return best;
}

/// Captures something into a conditional node's body, and says what comes of it.
void try_in_body(const char* name, cudaStream_t stream, const std::function<void()>& work) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  std::string outcome = "works";
  const Memory flag(sizeof(unsigned));
  must(cudaMemset(flag.as(), 1, sizeof(unsigned)));
  const char* stage = "capture";
  try {
    must(cudaGraphCreate(&graph, 0));
    const cudaGraphConditionalHandle handle = new_handle(graph);
    const cudaGraphNode_t set = add_set_condition(graph, nullptr, handle, nullptr, flag.as<unsigned>());
    const Conditional choice = add_conditional(graph, set, handle, cudaGraphCondTypeIf, 1);
    capture_into(choice.bodies[0], stream, work);
    stage = "instantiation";
    must(cudaGraphInstantiate(&exec, graph, 0));
    stage = "launch";
    must(cudaGraphLaunch(exec, nullptr));
    must(cudaDeviceSynchronize());
  } catch (const std::exception& error) {
    outcome = std::string("fails at ") + stage + ": " + error.what();
    cudaGetLastError();
  }
  if (exec != nullptr) cudaGraphExecDestroy(exec);
  if (graph != nullptr) cudaGraphDestroy(graph);
  cudaGetLastError();
  std::printf("| %s | %s |\n", name, outcome.c_str());
}

void nothing(void*) {}

/// What a body may hold.
void report_limits(cudaStream_t stream) {
  constexpr std::size_t kBytes = 1 << 20;
  const Memory a(kBytes);
  const Memory b(kBytes);
  void* pinned = nullptr;
  must(cudaMallocHost(&pinned, kBytes));
  cudaEvent_t event = nullptr;
  cudaEvent_t joined = nullptr;
  cudaStream_t second = nullptr;
  must(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  must(cudaEventCreateWithFlags(&joined, cudaEventDisableTiming));
  must(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
  std::printf("\n| inside a body | outcome |\n|---|---|\n");
  try_in_body("a kernel", stream, [&] { count<<<1, 1, 0, stream>>>(a.as<unsigned>()); });
  try_in_body("a memset", stream, [&] { must(cudaMemsetAsync(a.as(), 0, kBytes, stream)); });
  try_in_body("a copy on the device", stream,
              [&] { must(cudaMemcpyAsync(a.as(), b.as(), kBytes, cudaMemcpyDeviceToDevice, stream)); });
  try_in_body("a copy to pinned memory", stream,
              [&] { must(cudaMemcpyAsync(pinned, a.as(), kBytes, cudaMemcpyDeviceToHost, stream)); });
  try_in_body("two streams that join", stream, [&] {
    must(cudaEventRecord(event, stream));
    must(cudaStreamWaitEvent(second, event, 0));
    count<<<1, 1, 0, second>>>(a.as<unsigned>());
    must(cudaEventRecord(joined, second));
    must(cudaStreamWaitEvent(stream, joined, 0));
  });
  if (tile_product_available()) {
    try_in_body("a product in tiles (TMA, wgmma)", stream, [&] {
      const TileProductTask task{.a = a.as<std::uint8_t>(),
                                 .a_scales = a.as<float>(),
                                 .b = a.as<std::uint8_t>(),
                                 .b_scales = a.as<float>(),
                                 .rows = 256,
                                 .columns = 256,
                                 .depth = 256,
                                 .product = b.as()};
      multiply_tiles(task, stream);
    });
  }
  try_in_body("a cooperative kernel", stream, [&] {
    must(cudaLaunchCooperativeKernel(reinterpret_cast<void*>(&wait_for_all), dim3(4), dim3(32), nullptr, 0, stream));
  });
  try_in_body("memory of the stream (cudaMallocAsync)", stream, [&] {
    void* memory = nullptr;
    must(cudaMallocAsync(&memory, kBytes, stream));
    must(cudaFreeAsync(memory, stream));
  });
  try_in_body("a function of the host", stream, [&] { must(cudaLaunchHostFunc(stream, &nothing, nullptr)); });
  try_in_body("an event for outside", stream,
              [&] { must(cudaEventRecordWithFlags(event, stream, cudaEventRecordExternal)); });
  cudaStreamDestroy(second);
  cudaEventDestroy(event);
  cudaEventDestroy(joined);
  cudaFreeHost(pinned);
}

int run() {
  if (!available()) {
    std::fprintf(stderr, "gnmr_gpu_conditional: no CUDA device\n");
    return 1;
  }
  int driver = 0;
  int runtime = 0;
  must(cudaDriverGetVersion(&driver));
  must(cudaRuntimeGetVersion(&runtime));
  std::printf("\nChoices inside a CUDA graph; driver %d, runtime %d, medians of %d runs\n", driver, runtime, kRuns);
  cudaStream_t stream = nullptr;
  must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  std::vector<Kind> kinds{Kind::plain, Kind::flags};
  for (const Kind kind : {Kind::two_ifs, Kind::if_else, Kind::one_switch}) {
    try {
      check_choices(kind, stream);
      kinds.push_back(kind);
    } catch (const std::exception& error) {
      std::printf("\n%s cannot be used here: %s\n", name_of(kind), error.what());
      cudaGetLastError();
    }
  }
  if (kinds.size() == 2) return 1;
  Clock clock;
  double small_cost = 0;
  double large_cost = 0;
  double large_ms = 0;
  for (const unsigned choices : {7u, 280u}) {
    const Casts small(128, 128);
    small_cost = report(measure(clock, small, choices, kinds, stream), 128, 128, choices);
    const Casts large(8192, 5120);
    const std::vector<Row> rows = measure(clock, large, choices, kinds, stream);
    large_cost = report(rows, 8192, 5120, choices);
    large_ms = rows[0].ms[0];
  }
  report_limits(stream);
  const double share = 100 * large_cost * 280 / 1000 / large_ms;
  std::printf(
      "\nA choice on the device costs %.2f µs behind a small kernel and %.2f µs behind a large one (the best of the "
      "three kinds, the slower of the two paths): %.2f ms for 280, %.1f%% of the casts alone. A graph that the host "
      "chooses before the step costs nothing of that, so conditional nodes are worth it only where the host does not "
      "know the set yet: %s.\n",
      small_cost, large_cost, large_cost * 280 / 1000, share,
      large_cost * 280 / 1000 < 1.0 ? "less than a millisecond a step buys a decision within the step"
                                    : "here a decision within the step would cost more than a millisecond of each");
  cudaStreamDestroy(stream);
  return 0;
}

}  // namespace
}  // namespace gnmr::bench

int main() {
  try {
    return gnmr::bench::run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gnmr_gpu_conditional: %s\n", error.what());
    return 1;
  }
}
