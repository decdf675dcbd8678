// A file system whose times tell of no change, so that a file is known to be the same only while
// nothing can have changed it: where its times are old, and it has no writer.
#pragma once

#include <atomic>

#include "fault/faulty_environment.hpp"

namespace penstock::test {

class coarse_times final : public fault::faulty_environment {
public:
    int facts(int handle, host::file_facts& out) override {
        constexpr std::int64_t second_ns = 1'000'000'000, changed_ns = 1'700'000'000'000'000'001;
        const int code = faulty_environment::facts(handle, out);
        out.identity.modified_ns = out.identity.changed_ns = changed_ns;
        out.exact_times = out.notes_stores = false;
        out.writing = has_writer ? host::writers::some : host::writers::none;
        out.now_ns = changed_ns + (is_old ? 3600 * second_ns : 1);
        return code;
    }

    std::atomic<bool> is_old{false}, has_writer{false};
};

}  // namespace penstock::test
