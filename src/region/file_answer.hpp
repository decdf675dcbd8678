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

}  // namespace penstock::region
