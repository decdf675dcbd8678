// A stream of the device, as calls of the host take it: a cudaStream_t, so that neither this header
// nor its user includes CUDA.
//
// Of no meaning on cpu. Each call says what it does before and after work on the stream, and what a
// null stream is to it. CUDA's default stream has a name that is not null, cudaStreamLegacy. A
// stream that is being captured gives -EBUSY and nothing changes; so does the default stream while
// a stream that waits for it is captured.
#pragma once

namespace penstock {

using device_stream = void*;

}  // namespace penstock
