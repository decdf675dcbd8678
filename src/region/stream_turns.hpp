// Where the requests of a region that go on by themselves lie on the caller's streams: each comes
// after the work that the stream had, and the stream waits until the request has ended.
//
// Requests have the numbers 1, 2, 3 and so on, and end in that order. Callers that make requests
// call begin, one at a time. The thread that serves them calls reached; has_come and end are called
// by it and by the thread that watches it, one at a time.
#pragma once

#include <cstdint>

namespace penstock::region {

// As it is here: for memory that knows no streams. The caller waits for the request itself then.
class stream_turns {
public:
    stream_turns() = default;
    // All turns have ended. Streams that still wait for one are waited for: they see the end soon.
    virtual ~stream_turns() = default;
    stream_turns(const stream_turns&) = delete;
    stream_turns& operator=(const stream_turns&) = delete;

    // Work that comes later on the stream waits for end(number). 0, or a negative errno, and then
    // the stream does not wait: -EBUSY, it is being captured, or cannot be used beside a capture.
    virtual int begin(std::uint32_t /*number*/, void* /*stream*/) { return 0; }
    // Waits until the stream has come to this turn. 0 or a negative errno.
    virtual int reached(std::uint32_t /*number*/) { return 0; }
    // Has the stream come to this turn, which has not ended, and does it wait since then? Makes no
    // call of a driver.
    [[nodiscard]] virtual bool has_come(std::uint32_t /*number*/) { return false; }
    // Lets the streams go on that wait for this turn or an earlier one. Numbers only grow.
    virtual void end(std::uint32_t /*number*/) {}
};

}  // namespace penstock::region
