// Reads of programs that are answered with what devices hold (peer caching: Brokhman et al., GAIA,
// 2019).
//
// What a device holds of a page is what the home has, where the state machine names it as a source.
// That stays so while no request moves pages and no program writes: the first is kept out for as
// long as the read takes, of the second one that begins meanwhile is at the same time as the read,
// which may have either.
#include <algorithm>
#include <bit>
#include <mutex>
#include <shared_mutex>

#include "os/file_kind.hpp"
#include "region/shared_home.hpp"

namespace penstock::region {

using consistency::has;
using consistency::only;

// Of a range of pages those that one device holds, and a worker of its memory that is ours.
struct shared_home::held_pages {
    consistency::place place = 0;
    region_memory* memory = nullptr;
    unsigned worker = 0;
    std::vector<staged_run> runs;  // slots: from the first page of the range on

    // Of the bytes [begin, end), both from the first page of the range on.
    [[nodiscard]] std::uint64_t bytes_of(std::uint64_t begin, std::uint64_t end) const {
        std::uint64_t sum = 0;
        for (const staged_run& run : runs)
            sum += std::min(end, (run.slot + run.count) * page_bytes) -
                   std::max(begin, run.slot * page_bytes);
        return sum;
    }
};

// No memory: nothing is held, or its holder is busy. `end`: of the bytes that are wanted. `facts`:
// of the file now, where others may write it.
shared_home::held_pages shared_home::held_by_device(const page_range& range, std::uint64_t end,
                                                    const host::file_facts* facts) {
    held_pages out;
    std::lock_guard lock(state_);
    if (facts != nullptr &&
        (doubtful_ || !(facts->identity == known_) || host::may_change_unseen(*facts)))
        return out;
    for (std::uint64_t page = range.begin; page < std::min(range.end, versions_.pages()); ++page) {
        // Behind a region's end its memory may have what the file has not.
        const std::uint64_t wanted_end = std::min(end, (page + 1) * page_bytes);
        consistency::place_set devices =
            sources(versions_.at(page)) & ~only(consistency::cpu) & ~only(page_state::storage);
        for (consistency::place p = 1; p <= most_devices; ++p)
            if (members_[p].end_bytes < wanted_end) devices &= ~only(p);
        if (devices == 0 || (out.place != 0 && !has(devices, out.place))) continue;
        if (out.place == 0) out.place = consistency::first_of(devices);
        const staged_run fresh{page - members_[out.place].pages.begin, page - range.begin, 1};
        if (!out.runs.empty() && out.runs.back().slot + out.runs.back().count == fresh.slot)
            ++out.runs.back().count;
        else out.runs.push_back(fresh);
    }
    if (out.place == 0) return out;
    out.worker = static_cast<unsigned>(std::countr_one(reading_[out.place]));
    if (out.worker >= members_[out.place].memory->workers()) return out;
    reading_[out.place] |= std::uint64_t{1} << out.worker;
    out.memory = members_[out.place].memory;
    return out;
}

bool shared_home::outside_writers() const {
    std::lock_guard lock(state_);
    return others_may_write();
}

// The device's pages come while the others are read. 0 or a negative errno.
int shared_home::read_held(const held_pages& held, int fd, const page_range& range) const {
    int code = held.memory->read_back(held.worker, held.runs);
    std::uint64_t next = 0;
    const auto read_up_to = [&](std::uint64_t slot) {
        if (slot > next) host::read_nothing_ahead(fd);
        if (code == 0 && slot > next)
            code = read_run(fd, held.memory->staging(held.worker) + next * page_bytes,
                            range.begin + next, slot - next);
    };
    for (const staged_run& run : held.runs) {
        read_up_to(run.slot);
        next = run.slot + run.count;
    }
    read_up_to(range.end - range.begin);
    const int waited = held.memory->wait(held.worker);
    return code != 0 ? code : waited;
}

std::uint64_t shared_home::read_for_program(int fd, std::uint64_t offset, std::uint64_t bytes,
                                            const byte_sink& use) {
    const std::shared_lock turn(requests_, std::try_to_lock);
    if (!turn.owns_lock() || with_.writers_of(key_) != 0 || is_passed_to_writers()) return 0;
    const std::int64_t size = env_.size_bytes(fd_);
    if (size < 0 || offset >= static_cast<std::uint64_t>(size)) return 0;
    const std::uint64_t end = offset + std::min(bytes, static_cast<std::uint64_t>(size) - offset);
    const page_range range{offset / page_bytes, (end + page_bytes - 1) / page_bytes};
    if (range.empty() || range.end - range.begin > staging_pages) return 0;
    // What programs change that we do not hear of shows in the file's times only.
    host::file_facts facts;
    const bool ask = outside_writers();
    if (ask && env_.facts(fd_, facts) != 0) return 0;
    const held_pages held = held_by_device(range, end, ask ? &facts : nullptr);
    if (held.memory == nullptr) return 0;
    const bool there = !host::is_in_memory(env_, fd_, range.begin * page_bytes,
                                           (range.end - range.begin) * page_bytes) &&
                       read_held(held, fd, range) == 0;
    const std::uint64_t first = offset % page_bytes,
                        from_there = there ? held.bytes_of(first, first + end - offset) : 0;
    if (there) use(held.memory->staging(held.worker) + first, end - offset, from_there);
    std::lock_guard lock(state_);
    reading_[held.place] &= ~(std::uint64_t{1} << held.worker);
    return from_there;
}

}  // namespace penstock::region
