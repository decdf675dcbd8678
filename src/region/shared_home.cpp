#include "region/shared_home.hpp"

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <utility>

#include "os/file_kind.hpp"
#include "region/home_writer.hpp"

namespace penstock::region {

namespace {

using consistency::has;
using consistency::only;
using consistency::place;

// Where programs of a mount may have a view, so many pages come home at a time, and have masks
// meanwhile.
constexpr std::uint64_t slice_pages = 8192;

// The file is there for all that ask. What the kernel keeps for programs of a mount is not known.
page_state at_first(const host::hub& shared) {
    page_state out;
    out.present = only(consistency::cpu);
    out.view = !shared.views().empty();
    return out;
}

std::uint64_t pages_for(std::uint64_t bytes) { return (bytes + page_bytes - 1) / page_bytes; }

}  // namespace

shared_home::shared_home(host::environment& env, shared_files& with,
                         std::atomic<std::uint64_t>& live, int fd, const host::file_facts& facts)
    : env_(env),
      with_(with),
      live_(live),
      fd_(fd),
      is_elsewhere_(env.changes_elsewhere(fd)),
      key_{facts.identity.device, facts.identity.inode},
      masks_(with.masks_of(key_)),
      versions_(std::max<std::uint64_t>(pages_for(facts.identity.size_bytes), 1)),
      known_(facts.identity) {
    ++live_;
}

shared_home::~shared_home() {
    env_.close(fd_);
    --live_;
}

std::int64_t shared_home::size_bytes() const {
    host::file_facts facts;
    const int code = env_.facts(fd_, facts);
    return code != 0 ? code : static_cast<std::int64_t>(facts.identity.size_bytes);
}

int shared_home::join(const member& holder, place& out) {
    std::lock_guard lock(state_);
    versions_.keep(holder.pages, at_first(with_.hub()));
    for (place p = 1; p <= most_devices; ++p) {
        if (members_[p].memory != nullptr) continue;
        members_[p] = holder;
        out = p;
        return 0;
    }
    return -EMFILE;
}

void shared_home::leave(place holder) {
    std::lock_guard request(requests_);
    std::lock_guard lock(state_);
    const auto gone = [&](page_state& p) {
        p.present &= ~only(holder);
        p.stale &= ~only(holder);
        p.pending &= ~only(holder);
    };
    // No page but the holder's has its bits. Whole chunks, since this must not fail for want of
    // memory: others would go on to read what the holder is about to free.
    versions_.change(versions_.in_whole_chunks(members_[holder].pages), gone);
    members_[holder] = {};
    neighbours_[holder] = {};
    for (neighbours& of : neighbours_) {
        of.reached &= ~only(holder);
        of.same_memory &= ~only(holder);
    }
}

bool shared_home::others_may_write() const {
    return std::any_of(members_.begin(), members_.end(), [](const member& other) {
        return other.memory != nullptr && other.outside_writers;
    });
}

// Has another program written to the file? That can be told of a file, not of its pages.
//
// Programs to which the kernel passes the file through may write while they have it open, and
// through a mapping for longer. That they do so no more is believed when the mount says so, or the
// operating system knows no writer of the file. Then this look is the last that takes all pages
// for changed.
int shared_home::look() {
    const host::passed_files::seen passed = with_.hub().passed.look(key_);
    host::file_facts facts;
    if (const int code = env_.facts(fd_, facts); code != 0) return code;
    const bool was_passed = passed_ || passed.opens != passed_opens_;
    const bool is_another = doubtful_ || !(facts.identity == known_);
    if (was_passed || (others_may_write() && is_another))
        versions_.change(page_range{0, versions_.pages()},
                         [](page_state& p) { consistency::wrote_by_cpu(p); });
    known_ = facts.identity;
    doubtful_ = host::may_change_unseen(facts);
    passed_opens_ = passed.opens;
    passed_ = was_passed && passed.writers != 0 && facts.writing != host::writers::none;
    return 0;
}

// What a program writes so is told to none, so no page that a device has is known to be the file's.
bool shared_home::is_passed_to_writers() const {
    const host::passed_files::seen passed = with_.hub().passed.look(key_);
    std::lock_guard lock(state_);
    return passed_ || passed.opens != passed_opens_;
}

int shared_home::check_size(const member& holder) const {
    const std::int64_t size = size_bytes();
    if (size < 0) return static_cast<int>(size);
    return static_cast<std::uint64_t>(size) < holder.end_bytes ? -ESTALE : 0;
}

int shared_home::collect_from_programs() const {
    for (const auto& mount : with_.hub().views())
        if (const int code = mount->collect(key_); code != 0) return code;
    return 0;
}

int shared_home::acquire(place holder, const page_range& range) {
    if (const int code = collect_from_programs(); code != 0) return code;
    std::lock_guard lock(state_);
    if (const int code = check_size(members_[holder]); code != 0) return code;
    if (const int code = look(); code != 0) return code;
    const consistency::stamp now = ++clock_;
    versions_.change(common(members_[holder].pages, range),
                     [&](page_state& p) { consistency::acquire(p, holder, now); });
    return 0;
}

// All that was released of these pages, in the order of the devices.
int shared_home::bring_home(const page_list& pages, std::uint64_t& written) {
    for (place holder = 1; holder <= most_devices; ++holder) {
        page_list his;
        {
            std::lock_guard lock(state_);
            const auto is_pending = [&](const page_state& p) { return has(p.pending, holder); };
            if (members_[holder].memory == nullptr || pages.empty() ||
                !versions_.any({pages.front(), pages.back() + 1}, is_pending))
                continue;
            std::copy_if(pages.begin(), pages.end(), std::back_inserter(his),
                         [&](std::uint64_t page) { return is_pending(versions_.at(page)); });
        }
        if (his.empty()) continue;
        if (const int code = collect(holder, his, written); code != 0) return code;
    }
    return 0;
}

page_range shared_home::clipped(std::uint64_t offset, std::uint64_t bytes) const {
    const std::uint64_t end = bytes > UINT64_MAX - offset ? UINT64_MAX : offset + bytes;
    return {offset / page_bytes,
            std::min(versions_.pages(), end / page_bytes + (end % page_bytes != 0))};
}

void shared_home::admit_program(std::uint64_t offset, std::uint64_t bytes) {
    std::lock_guard lock(state_);
    const page_range range = clipped(offset, bytes);
    if (versions_.any(range, [](const page_state& p) { return !p.view; }))
        versions_.change(range, [](page_state& p) { p.view = true; });
}

void shared_home::wrote_by_program(std::uint64_t offset, std::uint64_t bytes) {
    std::lock_guard lock(state_);
    if (const page_range range = clipped(offset, bytes); !range.empty())
        versions_.change(range, [](page_state& p) { consistency::wrote_by_cpu(p); });
}

// What the kernel has had of these pages until now it has no more.
int shared_home::take_views(const host::view_list& mounts, const page_list& pages) {
    page_list seen;
    {
        std::lock_guard lock(state_);
        std::copy_if(pages.begin(), pages.end(), std::back_inserter(seen),
                     [&](std::uint64_t page) { return versions_.at(page).view; });
        versions_.change(seen, [](page_state& p) { p.view = false; });
    }
    int code = 0;
    for_runs(seen, [&](const page_range& run) {
        for (const auto& mount : mounts)
            if (code == 0)
                code = mount->take_away(key_, run.begin * page_bytes,
                                        (run.end - run.begin) * page_bytes);
    });
    if (code == 0) return 0;
    std::lock_guard lock(state_);
    versions_.change(seen, [](page_state& p) { p.view = true; });
    return code;
}

int shared_home::collect(place holder, const page_list& pages, std::uint64_t& written) {
    const host::view_list mounts = with_.hub().views();
    if (mounts.empty()) return collect_slice(holder, pages, false, written);
    int code = 0;
    for (std::uint64_t first = 0; code == 0 && first < pages.size(); first += slice_pages) {
        const std::uint64_t end = std::min<std::uint64_t>(pages.size(), first + slice_pages);
        const page_list slice(pages.begin() + static_cast<std::ptrdiff_t>(first),
                              pages.begin() + static_cast<std::ptrdiff_t>(end));
        code = collect_slice(holder, slice, true, written);
        const int failed = take_views(mounts, slice);
        if (failed == 0) {
            masks_->remove(this, slice);
            continue;
        }
        // Masks stay until the kernel asks for the pages anew, and the next release tries again.
        if (code == 0) code = failed;
        std::lock_guard lock(state_);
        versions_.change(slice, [&](page_state& p) { p.pending |= only(holder); });
    }
    return code;
}

// What the server of a file says to what was written by a handle. It says so once, and maybe to
// another batch than the one that it means: so batches ask one at a time, and after an error none
// is told anything else.
struct shared_home::handed_over {
    int ask(host::environment& env, int fd) {
        const std::lock_guard hold(mutex);
        if (code == 0) code = host::hand_over_file(env, fd);
        return code;
    }
    std::mutex mutex;
    int code = 0;  // guarded by mutex
};

int shared_home::collect_slice(place holder, const page_list& pages, bool masked,
                               std::uint64_t& written) {
    member from;
    bool exactly = false;
    {
        std::lock_guard lock(state_);
        from = members_[holder];
        exactly = others_may_write() || masked;
    }
    const consistency::step collecting{consistency::work::collect, holder, 0, 0};
    std::atomic<std::uint64_t> all_written{0};
    handed_over told;
    // Opened anew each time: while it is open it cannot be told whether another program writes
    // (os/file_kind.hpp).
    const int fd = env_.open_writing(fd_);
    if (fd < 0) return fd;
    const auto each = [&](const page_list& batch, auto&& change) {
        std::lock_guard lock(state_);
        versions_.change(batch, change);
    };
    const int code = for_batches(*from.memory, pages, [&](unsigned worker, const page_list& batch) {
        page_list own = batch;
        for (std::uint64_t& page : own) page -= from.pages.begin;
        each(batch, [&](page_state& p) { begin(p, collecting); });
        int failed = from.memory->collect(worker, own);
        if (failed == 0) {
            if (masked) masks_->add(this, batch, from.memory->marks(worker));
            // What came to the file must be in the bases, also if the rest did not: put back to
            // what it was, it would else look unchanged.
            // A kernel that has the file open in a runtime's cache writes it too.
            const bool kernels_write = with_.hub().known.may_have(key_);
            written_pages out =
                write_marked(env_, fd,
                             {batch, from.memory->staging(worker), from.memory->marks(worker),
                              from.end_bytes, exactly || kernels_write, is_elsewhere_});
            if (masked) masks_->settle(this, batch);
            // What a server has after it refused some is not known: all of it counts as changed.
            if (const int refused = is_elsewhere_ ? told.ask(env_, fd) : 0; refused != 0)
                out = {out.code != 0 ? out.code : refused, 0, 0};
            all_written += out.bytes;
            failed = from.memory->adopt(worker, own, out.settled);
            if (out.code != 0) failed = out.code;
        }
        each(batch, [&](page_state& p) { finish(p, collecting, failed == 0); });
        return failed;
    });
    env_.close(fd);
    written += all_written;
    std::lock_guard lock(state_);
    doubtful_ = true;  // another writer's changes meanwhile look like ours
    return code;
}

std::int64_t shared_home::release(place holder, const page_range& range, const page_list& changed) {
    std::lock_guard request(requests_);
    page_list pending;
    {
        std::lock_guard lock(state_);
        if (const int code = check_size(members_[holder]); code != 0) return code;
        if (members_[holder].promote) {
            page_list own = changed;
            for (std::uint64_t& page : own) page -= members_[holder].pages.begin;
            members_[holder].memory->used(own);
        }
        const consistency::stamp now = ++clock_;
        const auto stamped = [&](page_state& p) {
            if (has(p.present, holder)) consistency::release(p, holder, now);
        };
        versions_.change(changed, stamped);
        // Also what an earlier release could not bring home.
        pending =
            versions_.pages_where(common(members_[holder].pages, range),
                                  [&](const page_state& p) { return has(p.pending, holder); });
    }
    std::uint64_t written = 0;
    const int code = bring_home(pending, written);
    return code != 0 ? code : static_cast<std::int64_t>(written);
}

region_memory& shared_home::memory_of(place holder) const {
    std::lock_guard lock(state_);
    return *members_[holder].memory;
}

std::int64_t shared_home::prefer(place holder, std::uint64_t begin, std::uint64_t end,
                                 void* stream) {
    std::lock_guard request(requests_);
    return memory_of(holder).prefer(begin, end, stream);
}

std::int64_t shared_home::promote(place holder, void* stream) {
    std::lock_guard request(requests_);
    return memory_of(holder).promote(stream);
}

int shared_home::sync() {
    std::lock_guard request(requests_);
    {
        std::lock_guard lock(state_);
        versions_.change(page_range{0, versions_.pages()}, [](page_state& p) { p.newer = false; });
    }
    const int code = host::sync_file(env_, fd_);
    if (code == 0) return 0;
    std::lock_guard lock(state_);
    versions_.change(page_range{0, versions_.pages()}, [](page_state& p) { p.newer = true; });
    return code;
}

}  // namespace penstock::region
