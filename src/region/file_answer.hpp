// What a call on the file says, in the codes of a region.
#pragma once

#include <cerrno>

namespace penstock::region {

// To the caller of a region -EBUSY says that its stream cannot be used now, and that nothing has
// changed. A file that is busy, as by another program on a server's files, is another matter and
// has another cure, so it has another code.
template <typename Code>
constexpr Code file_answer(Code code) {
    return code == -EBUSY ? Code{-ETXTBSY} : code;
}

// For the log, after the error of a sync.
inline constexpr const char* cure_of_a_sync =
    "; what was released since the last sync may be lost; write and release it once more, for a "
    "later sync says nothing about it";

}  // namespace penstock::region
