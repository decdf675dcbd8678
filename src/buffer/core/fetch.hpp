// Fetching memory into the processor's caches ahead of use.
#pragma once

// Stands before every function that does nothing else. gcc takes such a function for one without
// effect and leaves out the calls of it, unless its body was put in their place before that is
// looked at.
#define PENSTOCK_FETCHING [[gnu::always_inline]] inline

namespace penstock::buffer {

PENSTOCK_FETCHING void fetch(const void* from) { __builtin_prefetch(from); }

}  // namespace penstock::buffer
