// A stream of the device, as an argument of host calls: a cudaStream_t, declared so that neither
// this header nor its user includes CUDA.
//
// It has no meaning on cpu. Each call says which work on the stream comes before and after it, and
// what a null stream means. CUDA's default stream has a name that is not null, cudaStreamLegacy. A
// call with a stream that is being captured gives -EBUSY and changes nothing; so does the default
// stream while a stream that waits for it is captured.
#pragma once

namespace penstock {

using device_stream = void*;

}  // namespace penstock
