// Of which version of a file the kernel's pages are, so that it may keep them at an open.
//
// An open of another version has the kernel drop its pages. It does so some time after the answer,
// in the program's own call, and may wait for a page meanwhile. Another open that comes then must
// not keep the pages that are still there. So a version counts as that of the pages only when a
// program whose open dropped them has called again: to close.
#pragma once

#include <cstdint>

#include "os/env.hpp"

namespace penstock::mount {

// With a lock of the caller's.
class kept_pages {
public:
    static constexpr std::uint32_t most_number = (1u << 24) - 1;
    struct answer {
        bool keeps = false;
        std::uint32_t dropping = 0;  // for dropped(), when the program closes; 0: it keeps them
    };

    answer opened(const host::file_identity& now) {
        if (version_ == now) return {true, 0};
        version_ = {};
        if (dropping_ != now) {
            dropping_ = now;
            number_ = number_ % most_number + 1;
        }
        return {false, number_};
    }
    // That version is the one of the pages from now on, unless a later one was opened meanwhile.
    void dropped(std::uint32_t number) {
        if (number == number_ && dropping_.device != 0) version_ = dropping_;
    }
    // Whatever is there now, or is dropped just now, the next open drops it.
    void forget() { version_ = dropping_ = {}; }

private:
    host::file_identity version_, dropping_;  // device 0: none
    std::uint32_t number_ = 0;                // of dropping_
};

}  // namespace penstock::mount
