// How pages come into a region: from another region's memory, where one has what the file has, from
// the cache of a runtime on the same device, from frames of a buffer, and else from the file.
//
// A region's bases are what its pages were filled with, and what it has released since; of a region
// that is only read, its pages are that. So the bases are what the home has, where the state
// machine names the region as a source: nothing came home after them, and nothing of its own is
// under way there. Kernels change the pages and never the bases. What writes bases is a fill, a
// release, or the end of the region, and `requests_` keeps all of them out for as long as a request
// copies.
//
// What the states cannot tell:
//   - A program that uses a mount writes the file before it tells so, and others may have read the
//     new bytes. While one writes, nothing is taken from regions.
//   - A program to which the kernel passes the file through writes it and tells nothing. From when
//     it may until a look at the file found it gone, nothing is taken from regions.
//   - Programs that write otherwise are found by the file's times, in each acquire, while a region
//     says that there may be some (look). What a region has that says there are none is not looked
//     after in that time, and a region that says there may be some does not take it.
//   - Of the page in which a region ends, its memory may have bytes behind that end which the file
//     has not.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <iterator>
#include <mutex>
#include <thread>
#include <tuple>
#include <utility>

#include "os/file_kind.hpp"
#include "region/file_answer.hpp"
#include "region/home_writer.hpp"
#include "region/shared_home.hpp"

namespace penstock::region {

using consistency::has;
using consistency::only;
using consistency::place;

namespace {

shared_list share(page_list&& pages) { return std::make_shared<const page_list>(std::move(pages)); }

// The pages of a region that lie in it as a whole.
page_range whole_pages(const member& of) {
    return {of.pages.begin, std::min(of.pages.end, of.end_bytes / page_bytes)};
}

}  // namespace

fetched_pages shared_home::fetch(place holder, const page_range& range, void* stream) {
    std::lock_guard request(requests_);
    fetched_pages out;
    consistency::step filling{consistency::work::fill, holder, only(consistency::cpu), 0};
    shared_list all;
    member self;
    {
        std::lock_guard lock(state_);
        self = members_[holder];
        members_[holder].untouched = false;
        // Whatever is released after this has a later stamp, and is for the next acquire, whether
        // it is among the bytes or not.
        filling.seen = clock_;
        all = share(versions_.pages_where(common(self.pages, range), [&](const page_state& p) {
            return next_for_access(p, holder).kind != consistency::work::nothing;
        }));
    }
    const page_list& wanted = *all;
    if (wanted.empty()) return out;
    std::uint64_t written = 0;
    out.code = file_answer(bring_home(wanted, written));
    // What no kernel has seen yet waits for no stream of the caller.
    if (out.code == 0 && !self.untouched) out.code = self.memory->begin(stream);
    if (out.code != 0) return out;
    shared_list missing = self.untouched ? share(without_holes(wanted)) : all;
    fill_from_neighbours(holder, missing, out);
    fill_from_caches(self, missing, out);
    out.code = file_answer(fill(self, *missing, out));
    if (out.code != 0) return out;
    std::lock_guard lock(state_);
    versions_.change(wanted, [&](page_state& p) { finish(p, filling, true); });
    out.pages = wanted.size();
    if (self.promote && !self.untouched) {  // the first fill of all says nothing
        page_list numbers = wanted;
        for (std::uint64_t& page : numbers) page -= self.pages.begin;
        self.memory->used(numbers);
    }
    return out;
}

std::string shared_home::meet(place holder) {
    std::lock_guard request(requests_);
    std::array<member, most_devices + 1> all;
    {
        std::lock_guard lock(state_);
        all = members_;
    }
    std::array<neighbours, most_devices + 1> met{};
    std::string refused;
    const auto show = [&](place from, place to) {
        const host::device_link link = all[from].memory->show_to(*all[to].memory);
        if (link.kind != host::link_kind::none) met[to].reached |= only(from);
        else if (refused.empty()) refused = link.reason;
        if (link.kind == host::link_kind::same_memory) met[to].same_memory |= only(from);
    };
    for (place other = 1; other <= most_devices; ++other)
        if (other != holder && all[other].memory != nullptr)
            show(other, holder), show(holder, other);
    std::lock_guard lock(state_);
    for (place p = 1; p <= most_devices; ++p) {
        neighbours_[p].reached |= met[p].reached;
        neighbours_[p].same_memory |= met[p].same_memory;
    }
    return refused;
}

// Takes out of `missing` the pages that the region `from` has, as the file has them. Sets `source`
// to what that region is now.
shared_list shared_home::take_held(place holder, place from, shared_list& missing, member& source) {
    std::lock_guard lock(state_);
    const member& self = members_[holder];
    source = members_[from];
    if (self.outside_writers && !source.outside_writers) return share({});
    const page_range range = common(self.pages, whole_pages(source));
    const auto is_wanted = [&](const page_state& p) {
        return next_for_access(p, holder).kind != consistency::work::nothing;
    };
    const auto is_held = [&](const page_state& p) { return has(sources(p), from); };
    // Mostly it has all of them, and then no page is looked at.
    const page_list& before = *missing;
    const page_range span{before.front(), before.back() + 1};
    const bool inside = range.begin <= span.begin && span.end <= range.end;
    if (inside &&
        !versions_.any(span, [&](const page_state& p) { return is_wanted(p) && !is_held(p); }))
        return std::exchange(missing, share({}));
    const page_list held = versions_.pages_where(
        range, [&](const page_state& p) { return is_wanted(p) && is_held(p); });
    page_list out, left;
    std::set_intersection(before.begin(), before.end(), held.begin(), held.end(),
                          std::back_inserter(out));
    if (out.empty()) return share({});
    std::set_difference(before.begin(), before.end(), out.begin(), out.end(),
                        std::back_inserter(left));
    missing = share(std::move(left));
    return share(std::move(out));
}

// Whole lists of pages from one region after the other, the nearest first: to choose for each page
// costs more than to copy it. What could not be copied is missing still.
void shared_home::fill_from_neighbours(place holder, shared_list& missing, fetched_pages& out) {
    // Asked before the states: a program that has written by then has told so.
    if (with_.writers_of(key_) != 0 || is_passed_to_writers()) return;
    neighbours near;
    member self;
    {
        std::lock_guard lock(state_);
        near = neighbours_[holder];
        self = members_[holder];
    }
    const auto take = [&](place from) {
        if (missing->empty()) return;
        member source;
        const shared_list pages = take_held(holder, from, missing, source);
        if (pages->empty()) return;
        const int code = source.memory->lost().ok() ? copy_pages(self, source, *pages) : -EIO;
        if (code == 0) {
            out.from_neighbours += pages->size();
            return;
        }
        out.neighbour_code = code;
        page_list both;
        std::merge(missing->begin(), missing->end(), pages->begin(), pages->end(),
                   std::back_inserter(both));
        missing = share(std::move(both));
    };
    for (const consistency::place_set of : {near.same_memory, near.reached & ~near.same_memory})
        for (place from = 1; from <= most_devices; ++from)
            if (has(of, from)) take(from);
}

// By the kernel that merges pages around own changes: it reads the other memory where that lies. A
// copy engine would need a call for each run of pages, and room, and the same kernel after it.
int shared_home::copy_pages(const member& to, const member& from, const page_list& pages) {
    return for_batches(
        *to.memory, pages,
        [&](unsigned worker, const page_list& batch) {
            std::vector<staged_page> placed;
            placed.reserve(batch.size());
            for (const std::uint64_t page : batch)
                placed.push_back({page - to.pages.begin, page - from.pages.begin});
            return to.memory->fill(worker, from.memory->settled(), placed);
        },
        settled_batch_pages);
}

// What kernels have read lies in the cache of a runtime, where its pages need not come from the
// file. Only of the file as the region knows it: a file that changed since then is read, as is one
// that a program may have changed without a trace.
void shared_home::fill_from_caches(const member& holder, shared_list& missing, fetched_pages& out) {
    if (missing->empty() || !with_.hub().known.may_have(key_)) return;
    // Asked before the facts: a program has written, or will.
    if (with_.writers_of(key_) != 0 || is_passed_to_writers()) return;
    host::file_facts facts;
    if (env_.facts(fd_, facts) != 0 || host::may_change_unseen(facts)) return;
    {
        const std::lock_guard lock(state_);
        if (!(facts.identity == known_)) return;
    }
    const auto use = [&](host::page_source& source, const host::lent_file& lent) {
        if (missing->empty() || !holder.memory->reaches(lent)) return;
        std::mutex mutex;
        page_list left;
        const int code = for_batches(
            *holder.memory, *missing,
            [&](unsigned worker, const page_list& batch) {
                std::vector<staged_page> pages;
                pages.reserve(batch.size());
                for (const std::uint64_t page : batch)
                    pages.push_back({page - holder.pages.begin, page});
                const int failed = holder.memory->fill_from_cache(worker, lent, pages);
                for (std::size_t i = 0; i < batch.size(); ++i) {
                    if (pages[i].slot != 0) continue;
                    const std::lock_guard lock(mutex);
                    left.push_back(batch[i]);
                }
                return failed;
            },
            settled_batch_pages);
        // What is filled all the same is filled again, around changes of the region's own.
        if (code != 0 || !source.is_lent_as_is(lent)) return;
        std::sort(left.begin(), left.end());
        out.from_caches += missing->size() - left.size();
        missing = share(std::move(left));
    };
    with_.hub().visit_caches(facts.identity, use);
}

int shared_home::read_run(int fd, std::byte* to, std::uint64_t page, std::uint64_t pages) const {
    const std::int64_t got = host::read_all(env_, fd, to, pages * page_bytes, page * page_bytes);
    if (got < 0) return static_cast<int>(got);
    std::fill(to + got, to + pages * page_bytes, std::byte{0});  // behind the end of the file
    return 0;
}

// Those that have bytes which were ever written, or may have: of a file that is to be written as a
// whole, none. A server answers by what it has, and knows nothing of what programs of this machine
// stored in a mapping.
page_list shared_home::without_holes(const page_list& pages) const {
    if (is_elsewhere_) return pages;
    constexpr int most_extents = 1000;  // to ask for many costs more than to read
    page_list out;
    std::size_t i = 0;
    for (int extents = 0; i < pages.size() && extents < most_extents; ++extents) {
        const std::int64_t data = env_.next_data(fd_, pages[i] * page_bytes);
        if (data == INT64_MAX) return out;
        const std::int64_t end =
            data < 0 ? data : env_.next_hole(fd_, static_cast<std::uint64_t>(data));
        if (end < 0) break;
        while (i < pages.size() && (pages[i] + 1) * page_bytes <= static_cast<std::uint64_t>(data))
            ++i;
        for (; i < pages.size() && pages[i] * page_bytes < static_cast<std::uint64_t>(end); ++i)
            out.push_back(pages[i]);
    }
    out.insert(out.end(), pages.begin() + static_cast<std::ptrdiff_t>(i), pages.end());
    return out;
}

// How many pages, from the first of the run on, buffers of the process have as the file has them:
// these are at `to` then (docs/protocol/frames.md). `is_late`: their device does not answer.
std::uint64_t shared_home::copy_from_buffers(const page_range& run, std::byte* to,
                                             std::atomic<bool>& is_late) const {
    constexpr auto longest_wait = std::chrono::milliseconds(20);
    host::frame_sources& frames = with_.hub().frames;
    if (!frames.any() || !frames.known.may_have(key_)) return 0;
    const std::uint64_t bytes = (run.end - run.begin) * page_bytes;
    std::uint64_t done = 0;
    for (std::uint64_t got = 1; got != 0 && done < bytes; done += got) {
        const host::frame_wish wanted{key_, env_, fd_, run.begin * page_bytes + done, bytes - done};
        got = frames.first_of(
            [&](host::frame_source& source) { return source.copy(wanted, to + done); });
        if (got != 0 || is_late) continue;
        const auto copy =
            frames.first_of([&](host::frame_source& source) { return source.begin(wanted); });
        if (copy == nullptr) break;
        const auto until = std::chrono::steady_clock::now() + longest_wait;
        while (!copy->has_ended() && std::chrono::steady_clock::now() < until)
            std::this_thread::yield();
        if (copy->has_ended()) got = copy->take(wanted, to + done);
        else is_late = true;
    }
    return done / page_bytes;
}

int shared_home::fill(const member& holder, const page_list& pages, fetched_pages& out) {
    std::atomic<bool> is_late{false};
    std::atomic<std::uint64_t> from_buffers{0};
    // A buffer of the process that has the file is asked first, by the ordinary way.
    const host::frame_sources& frames = with_.hub().frames;
    const bool may_be_direct = holder.untouched && !(frames.any() && frames.known.may_have(key_));
    direct_fill direct(may_be_direct ? holder.direct : direct_order{}, env_, fd_, *holder.memory,
                       pages.size() * page_bytes);
    const auto bring = [&](const page_range& run, std::byte* to) {
        const std::uint64_t there = copy_from_buffers(run, to, is_late);
        const std::uint64_t left = run.end - run.begin - there;
        const int code =
            left == 0 ? 0 : read_run(fd_, to + there * page_bytes, run.begin + there, left);
        return std::pair{code, run.begin + there};
    };
    const int code =
        for_batches(*holder.memory, pages, [&](unsigned worker, const page_list& batch) {
            std::vector<staged_page> staged;
            staged.reserve(batch.size());
            if (const std::byte* const from = direct.read(worker, batch); from != nullptr) {
                for (const std::uint64_t page : batch)
                    staged.push_back({page - holder.pages.begin, page - batch.front()});
                return holder.memory->fill(worker, from, staged);
            }
            std::uint64_t slot = 0;
            int code = 0;
            for_runs(batch, longest_gap,
                     [&](const page_range& run, std::size_t first, std::size_t last) {
                         for (std::size_t i = first; i <= last; ++i)
                             staged.push_back(
                                 {batch[i] - holder.pages.begin, slot + batch[i] - run.begin});
                         if (code != 0) return;
                         std::uint64_t from_file = 0;
                         std::tie(code, from_file) =
                             bring(run, holder.memory->staging(worker) + slot * page_bytes);
                         for (std::size_t i = first; i <= last; ++i)
                             from_buffers += batch[i] < from_file ? 1 : 0;
                         slot += run.end - run.begin;
                     });
            return code != 0 ? code
                             : holder.memory->fill(worker, holder.memory->staging(worker), staged);
        });
    out.direct_news = direct.news();
    if (code != 0) return code;
    out.from_buffers += from_buffers;
    out.direct += direct.pages();
    return 0;
}

}  // namespace penstock::region
