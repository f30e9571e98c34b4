// CopyTeam: threads that help callers with large jobs, which are cut into steps.
//
//   Status status = team.Run(parts.size(), [&](size_t at) { return Copy(parts[at]); });
//
// A caller takes step after step itself, and helpers that are free take some off it. So it waits
// for no helper but those that are amid a step, and where all cores are busy it does nearly
// everything itself. A caller that comes when as many threads are at work as there are helpers, or
// more, gets no help; nor is another helper woken then. Callers are never kept waiting for that.
//
// Thread safety: all methods may be called by any thread, but Run by no step.
// Ownership: owns its threads. A forked child has none of them, and must not use or destroy it.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <list>
#include <mutex>
#include <thread>
#include <vector>

#include "base/status.h"

namespace mooncake {

class CopyTeam {
 public:
  using Step = std::function<Status(size_t)>;

  explicit CopyTeam(int helpers);
  // REQUIRES: nobody is in Run.
  ~CopyTeam() { Stop(); }
  CopyTeam(const CopyTeam&) = delete;
  CopyTeam& operator=(const CopyTeam&) = delete;

  int helpers() const { return helpers_; }

  // Calls step(0) to step(count - 1), each once, by several threads in any order. After one has
  // failed no other begins. Returns once no thread is in a step: Ok, or what the first that failed
  // gave. What all steps did is visible to the caller then.
  Status Run(size_t count, const Step& step);

  // Ends the threads, each after the job that it is at. Run goes on without help.
  void Stop();

 private:
  struct Job;

  void Offer(Job& job);
  void Withdraw(Job& job);
  void Await(Job& job);
  void Work(Job& job);
  void Main();

  const int helpers_;
  std::mutex mutex_;  // guards all below, and of jobs what says so; not held in a step
  std::condition_variable offered_;
  std::condition_variable left_;  // a job, by its last helper
  std::list<Job*> offers_;
  int working_ = 0;  // callers and helpers
  bool is_stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace mooncake
