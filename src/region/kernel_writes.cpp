#include "region/kernel_writes.hpp"

#include <algorithm>
#include <numeric>

#include "hub/write_watch.hpp"
#include "region/programs.hpp"

namespace penstock::region {

namespace {

// Bytes of pages that are written, as a mask for each page.
struct written_part {
    page_list pages;
    std::vector<std::byte> marks;

    written_part(std::uint64_t offset, std::uint64_t bytes)
        : pages((offset + bytes + page_bytes - 1) / page_bytes - offset / page_bytes) {
        std::iota(pages.begin(), pages.end(), offset / page_bytes);
        marks.resize(pages.size() * mark_bytes);
        const std::uint64_t first = pages.empty() ? 0 : pages.front() * page_bytes;
        for (std::uint64_t at = offset - first; at < offset - first + bytes;) {
            if (at % 8 == 0 && offset - first + bytes - at >= 8) {
                marks[at / 8] = std::byte{0xff};
                at += 8;
            } else {
                marks[at / 8] |= static_cast<std::byte>(1u << at % 8);
                ++at;
            }
        }
    }
};

// To programs a kernel that writes is as a region that releases (programs.hpp): a page of which
// they changed something in a mapping is written back around the bytes that the kernel wrote. To
// regions it is as a program that writes.
class told_changes final : public host::write_watch {
    using views = std::vector<std::shared_ptr<program_views>>;
    using doing_it = std::function<std::int64_t()>;

    std::int64_t change(host::environment& env, int fd, const host::file_change& what,
                        const doing_it& doing) override {
        host::file_facts facts;
        if (env.facts(fd, facts) != 0) return doing();
        const file_key key{facts.identity.device, facts.identity.inode};
        const views mounts = all_views();
        const std::uint64_t old_end = facts.identity.size_bytes,
                            first = what.cuts ? std::min(what.offset, old_end) : what.offset;
        program_write access(key, program_access::kind::direct, first,
                             what.cuts ? UINT64_MAX : what.bytes);
        const std::int64_t result = mounts.empty() ? doing()
                                    : what.cuts    ? cut(mounts, key, first, doing)
                                                   : write(mounts, key, what, doing);
        access.wrote(first, what.cuts ? UINT64_MAX : what.bytes);
        return result;
    }

    int bring_home(const host::file_identity& file) override {
        const views mounts = all_views();
        for (const auto& one : mounts)
            if (const int code = one->collect({file.device, file.inode}); code != 0) return code;
        return mounts.empty() ? 0 : 1;
    }

    // Of what programs stored behind the new end, before it is the end, nothing must come after it.
    static std::int64_t cut(const views& mounts, const file_key& key, std::uint64_t end,
                            const doing_it& doing) {
        for (const auto& one : mounts) one->collect(key);
        const std::int64_t result = doing();
        for (const auto& one : mounts) one->take_away(key, end, 0);
        return result;
    }

    // The bytes are in the file then, whatever becomes of what programs have stored: that is an
    // error of theirs, and masks stay for it as after a release.
    static std::int64_t write(const views& mounts, const file_key& key,
                              const host::file_change& what, const doing_it& doing) {
        const written_part part(what.offset, what.bytes);
        const std::shared_ptr<page_masks> masks = masks_of(key);
        masks->add(&part, part.pages, part.marks.data());
        const std::int64_t result = doing();
        masks->settle(&part, part.pages);
        bool taken = true;
        for (const auto& one : mounts)
            taken = one->take_away(key, what.offset, what.bytes) == 0 && taken;
        // Else they stay until the kernel asks for the pages anew. A later owner at
        // the address of `part` finds them settled, and takes no harm.
        if (taken) masks->remove(&part, part.pages);
        return result;
    }
};

}  // namespace

void watch_kernel_writes() {
    static told_changes one;
    host::write_watch::installed() = &one;
}

}  // namespace penstock::region
