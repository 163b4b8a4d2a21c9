#pragma once

#include "parax/base/stop.h"

// SIGINT, SIGTERM and SIGHUP (unless `nohup` has it ignored).
namespace parax {

// From now on each of them ends the program at once: one line, exit status 130. `undo`, if any, is
// called before; it must be async-signal-safe.
void ExitOnStopSignals(void (*undo)() = nullptr);
// From now on they are only noted, but for a second SIGINT, which still ends the program at once.
void NoteStopSignals();
bool StopSignalled();

// A noted signal also stops what goes by `flag`, as long as the object lives.
class StopOnSignal {
 public:
  explicit StopOnSignal(StopFlag& flag);
  ~StopOnSignal();
  StopOnSignal(const StopOnSignal&) = delete;
  StopOnSignal& operator=(const StopOnSignal&) = delete;
};

}  // namespace parax
