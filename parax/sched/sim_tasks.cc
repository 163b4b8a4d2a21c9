#include <algorithm>

#include "parax/sched/sim_internal.h"

namespace parax {

SimTasks::SimTasks(const SimServer& server, int leaves, int domains)
    : server_(server),
      leaves_(leaves),
      ready_(static_cast<size_t>(domains)),
      published_(server.slices.size()),
      updates_(server.slices.size()) {
  if (server.commit) AddTasks(true, domains);
  AddTasks(false, domains);
}

// The lowest layers first, which have the highest bucket numbers: the next pass needs them first.
void SimTasks::AddTasks(bool updates, int domains) {
  for (int bucket = static_cast<int>(server_.slices.size()) - 1; bucket >= 0; --bucket) {
    const std::vector<SimSlice>& slices = server_.slices[static_cast<size_t>(bucket)];
    Task task;
    task.bucket = bucket;
    task.updates = updates;
    task.of_domain.resize(static_cast<size_t>(domains));
    task.claimed.resize(static_cast<size_t>(domains));
    task.slices = slices.size();
    for (size_t s = 0; s < slices.size(); ++s) {
      task.of_domain[static_cast<size_t>(slices[s].domain)].push_back(static_cast<int>(s));
    }
    tasks_.push_back(std::move(task));
  }
}

void SimTasks::Open(int index) {
  Task& task = tasks_[static_cast<size_t>(index)];
  task.done = 0;
  std::ranges::fill(task.claimed, 0);
  for (size_t d = 0; d < ready_.size(); ++d) {
    if (!task.of_domain[d].empty()) ready_[d].insert(index);
  }
}

bool SimTasks::Publish(int bucket) {
  int& published = published_[static_cast<size_t>(bucket)];
  if (++published < leaves_) return false;
  published = 0;
  Open(static_cast<int>(tasks_.size()) - 1 - bucket);
  return true;
}

SimTasks::Slice SimTasks::Claim(int domain) {
  std::set<int>& ready = ready_[static_cast<size_t>(domain)];
  const int index = *ready.begin();
  Task& task = tasks_[static_cast<size_t>(index)];
  const std::vector<int>& mine = task.of_domain[static_cast<size_t>(domain)];
  size_t& claimed = task.claimed[static_cast<size_t>(domain)];
  const Slice slice{index, mine[claimed++]};
  if (claimed == mine.size()) ready.erase(ready.begin());
  return slice;
}

const SimWork& SimTasks::WorkOf(const Slice& slice) const {
  const Task& task = tasks_[static_cast<size_t>(slice.task)];
  const SimSlice& costs =
      server_.slices[static_cast<size_t>(task.bucket)][static_cast<size_t>(slice.number)];
  return task.updates ? costs.update : costs.reduce;
}

bool SimTasks::Finish(const Slice& slice) {
  Task& task = tasks_[static_cast<size_t>(slice.task)];
  if (++task.done < task.slices) return false;
  if (task.updates || !server_.commit) {
    ++updates_[static_cast<size_t>(task.bucket)];
    return true;
  }
  if (++reduced_ < server_.slices.size()) return false;
  reduced_ = 0;
  for (size_t t = 0; t < server_.slices.size(); ++t) Open(static_cast<int>(t));
  return true;
}

}  // namespace parax
