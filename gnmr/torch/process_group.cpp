// SPDX-License-Identifier: Apache-2.0
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

#include "gnmr/core/error.h"
#include "gnmr/torch/collective.h"

namespace gnmr::nn {
namespace {

class ProcessGroupCollective : public Collective {
 public:
  explicit ProcessGroupCollective(c10::intrusive_ptr<c10d::ProcessGroup> group) : group_(std::move(group)) {}
  int rank() const override { return group_->getRank(); }
  int size() const override { return group_->getSize(); }
  void sum(at::Tensor& tensor) override { reduce(tensor, c10d::ReduceOp::SUM); }
  void largest(at::Tensor& tensor) override { reduce(tensor, c10d::ReduceOp::MAX); }

 private:
  void reduce(at::Tensor& tensor, c10d::ReduceOp::RedOpType operation) {
    std::vector<at::Tensor> tensors{tensor};
    c10d::AllreduceOptions options;
    options.reduceOp = operation;
    group_->allreduce(tensors, options)->wait();
  }

  c10::intrusive_ptr<c10d::ProcessGroup> group_;
};

}  // namespace

std::unique_ptr<Collective> process_group(const std::string& name) {
  try {
    return std::make_unique<ProcessGroupCollective>(c10d::resolve_process_group(name));
  } catch (const c10::Error& error) {
    throw Error("process group \"" + name + "\": " + error.what_without_backtrace() +
                " (make it in Python with torch.distributed.init_process_group)");
  }
}

}  // namespace gnmr::nn
