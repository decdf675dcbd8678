#include "store/block_reader.hpp"

#include <algorithm>
#include <cerrno>
#include <pthread.h>

#include "os/file_kind.hpp"
#include "os/size_signal.hpp"
#include "penstock/error.hpp"
#include "penstock/group/lane.hpp"

namespace penstock::host {

namespace {

using penstock::detail::host_now_ns;

constexpr std::uint32_t most_failures = 3;
// So old a look at a file's facts still counts for a block of it that is kept here.
constexpr std::uint64_t fresh_ns = 100'000'000;
constexpr std::size_t jobs_a_worker = 2;
// A put moves the bytes to another node and notes them there.
constexpr std::uint64_t puts_wait_longer = 5;

}  // namespace

block_reader::block_reader(environment& env, block_settings settings, const store_maker& make_store)
    : env_(env), settings_(std::move(settings)) {
    for (std::uint32_t i = 0; i < settings_.workers; ++i) stores_.push_back(make_store());
    try {
        for (const auto& store : stores_)
            threads_.emplace_back([this, &store = *store] {
                pthread_setname_np(pthread_self(), "penstock-block");
                ignore_size_signal();
                work(store);
            });
    } catch (...) {  // no thread to be had: the runtime is not made
        end_workers();
        throw;
    }
}

block_reader::~block_reader() { end_workers(); }

void block_reader::end_workers() {
    {
        const std::lock_guard lock(mutex_);
        stop_ = true;
    }
    wake_.notify_all();
    for (std::thread& thread : threads_) thread.join();
}

bool block_reader::is_paused() const {
    return host_now_ns() < paused_until_ns_.load(std::memory_order_relaxed);
}

// A reader that goes through a file has its next block brought while it works on one, if there are
// workers to spare: it had two of the three before from here. The others may have been in the
// memory of the operating system, as on a node that brought a part of the file into the store. What
// the store does not have is not read from the file for that: another node may be doing it. It is
// if a reader asks for the block before the store has answered: that reader would read the file
// alone, put nothing, and the next node would read it again.
std::shared_ptr<block_fetch> block_reader::fetch(const std::shared_ptr<shared_handle>& file,
                                                 const file_identity& version, bool is_settled,
                                                 std::uint64_t wanted_number) {
    const std::lock_guard lock(mutex_);
    const auto id_of = [&version](std::uint64_t number) {
        return block_id{version.device,      version.inode,      version.size_bytes,
                        version.modified_ns, version.changed_ns, number};
    };
    const auto look = [&](std::uint64_t number,
                          bool from_store_alone) -> std::shared_ptr<block_fetch> {
        const auto known = blocks_.find(id_of(number));
        job wanted;
        if (known != blocks_.end()) {
            kept_block& kept = known->second;
            kept.used = ++uses_;
            const block_fetch::state now = kept.fetch->look();
            if (now == block_fetch::state::under_way) {
                kept.fetch->reads_file_ |= is_settled && !from_store_alone;
                return kept.fetch;
            }
            if (now == block_fetch::state::failed && !is_settled &&
                host_now_ns() - kept.checked_ns < settings_.absent_ns)
                return nullptr;
            if (now == block_fetch::state::there) {
                if (host_now_ns() - kept.checked_ns < fresh_ns) return kept.fetch;
                wanted.known = kept.fetch;
            }
        }
        if (wanted.known == nullptr && is_paused()) return nullptr;
        if (stop_ || jobs_.size() >= threads_.size() * jobs_a_worker) return nullptr;
        wanted.fetch = std::make_shared<block_fetch>();
        wanted.file = file;
        wanted.version = version;
        wanted.is_settled = is_settled;
        wanted.fetch->reads_file_ = is_settled && !from_store_alone;
        wanted.number = number;
        blocks_[id_of(number)] = {wanted.fetch, ++uses_, host_now_ns()};
        drop_oldest();
        jobs_.push_back(wanted);
        wake_.notify_one();
        return wanted.fetch;
    };
    const auto is_known = [&](std::uint64_t number) { return blocks_.contains(id_of(number)); };
    auto found = look(wanted_number, false);
    int before = 0;
    for (std::uint64_t back = 1; back <= 3 && back <= wanted_number; ++back)
        before += is_known(wanted_number - back) ? 1 : 0;
    if (found == nullptr || before < 2 || jobs_.size() >= threads_.size() / 2) return found;
    for (std::uint64_t next = wanted_number + 1; next <= wanted_number + 2; ++next) {
        if (bytes_of_block(version.size_bytes, next) == 0) break;
        // What the operating system has comes from there. Its first page stands for the block.
        if (env_.in_page_cache(file->fd(), next * block_bytes, 1) > 0) continue;
        if (!is_known(next)) look(next, true);
        break;
    }
    return found;
}

// Those under way stay: a second fetch of one would read it twice.
void block_reader::drop_oldest() {
    while (blocks_.size() > settings_.most_blocks) {
        auto oldest = blocks_.end();
        for (auto at = blocks_.begin(); at != blocks_.end(); ++at)
            if (at->second.fetch->look() != block_fetch::state::under_way &&
                (oldest == blocks_.end() || at->second.used < oldest->second.used))
                oldest = at;
        if (oldest == blocks_.end()) return;
        blocks_.erase(oldest);
    }
}

void block_reader::work(block_store& store) {
    std::unique_lock lock(mutex_);
    for (;;) {
        wake_.wait(lock, [this] { return stop_ || !jobs_.empty(); });
        if (jobs_.empty()) return;
        job next = std::move(jobs_.front());
        jobs_.pop_front();
        const bool stops = stop_;
        lock.unlock();
        try {
            if (!stops) bring(store, next);
        } catch (...) {  // no memory for it: its readers read the file
        }
        // Else it was told when its bytes came, before it was put.
        block_fetch::state before = block_fetch::state::under_way;
        next.fetch->state_.compare_exchange_strong(before, block_fetch::state::failed);
        // It may be the last to have the file open, and a close may wait for a server, which no
        // other reader is to wait for.
        next = {};
        lock.lock();
    }
}

bool block_reader::is_as_opened(const job& j) const {
    file_facts now;
    return env_.facts(j.file->fd(), now) == 0 && now.identity == j.version &&
           (j.is_settled ? !may_change_unseen(now, settings_.trust)
                         : tells_version(now, settings_.trust));
}

bool block_reader::name_of(const job& j, named_block& out) const {
    if (find_place(env_, j.file->fd(), j.version, out.place) != 0) return false;
    out.key =
        host::key_of({settings_.space, out.place.path, out.place.file_system, j.version.size_bytes,
                      j.version.modified_ns, j.version.changed_ns, out.place.number},
                     j.number);
    return true;
}

// Tells readers of the fetch when its bytes are there. If they do not come it returns.
void block_reader::bring(block_store& store, const job& j) {
    if (!is_as_opened(j)) return;
    block_fetch& fetch = *j.fetch;
    const auto tell = [&fetch] {
        fetch.state_.store(block_fetch::state::there, std::memory_order_release);
    };
    if (j.known != nullptr) {
        fetch.memory_ = j.known->memory_;
        fetch.size_ = j.known->size_;
        return tell();
    }
    named_block block;
    if (!name_of(j, block)) return;
    const std::uint64_t bytes = bytes_of_block(j.version.size_bytes, j.number);
    if (bytes == 0) return;
    const std::shared_ptr<std::byte[]> memory(new std::byte[bytes + block_tail_bytes]);
    bool was_bad = false;
    const source from = read(store, j, block, memory.get(), bytes, was_bad);
    if (from == source::neither) return;
    fetch.memory_ = memory;
    fetch.size_ = bytes;
    // The tail is written before readers may have the memory; they do not look at it.
    if (from == source::file) write_tail(memory.get(), bytes, block.key);
    tell();
    if (from == source::file)
        put(store, block.key, {memory.get(), bytes + block_tail_bytes}, was_bad);
}

// A file that has not rested may give its path to another one within the grain of its times, which
// rests and is put while the store is asked here. So the block of such a file counts only if the
// path still leads to the file: no other one has then had it at rest in this version. One that has
// rested leaves a path in another version.
block_reader::source block_reader::read(block_store& store, const job& j, const named_block& block,
                                        std::byte* to, std::uint64_t bytes, bool& was_bad) {
    if (is_paused()) return source::neither;
    const std::span<std::byte> object(to, bytes + block_tail_bytes);
    const std::int64_t got = store.get(block.key, object, settings_.wait_ns, would_read_file(j));
    if (got > 0 && is_whole(object.first(static_cast<std::size_t>(got)), bytes, block.key,
                            settings_.checks_sums)) {
        failures_ = 0;
        if (!j.is_settled && !leads_to(env_, block.place, j.version)) return source::neither;
        ++counters_.hits;
        counters_.bytes += bytes;
        return source::store;
    }
    if (got < 0 && got != -ENOENT) {
        count_failure("get", got);
        return source::neither;
    }
    was_bad = got >= 0;
    if (was_bad) {
        ++counters_.bad;
        count_failure("get", -EBADMSG);
    } else {
        failures_ = 0;
        ++counters_.misses;
    }
    if (!may_read_file(j)) return source::neither;
    // What comes behind may come from the store. Other reads of the handle are as usual.
    read_nothing_ahead(j.file->fd());
    const std::int64_t read = read_all(env_, j.file->fd(), to, bytes, j.number * block_bytes);
    read_ahead_as_usual(j.file->fd());
    ++counters_.file_reads;
    counters_.file_read_bytes += static_cast<std::uint64_t>(std::max<std::int64_t>(read, 0));
    const bool is_right = read == static_cast<std::int64_t>(bytes) && is_as_opened(j);
    return is_right ? source::file : source::neither;
}

bool block_reader::would_read_file(const job& j) {
    const std::lock_guard lock(mutex_);
    return j.is_settled && j.fetch->reads_file_;
}

// False: the fetch has failed. It is decided and told under the lock, so a reader that asks for the
// block either is seen here or begins anew.
bool block_reader::may_read_file(const job& j) {
    const std::lock_guard lock(mutex_);
    if (j.is_settled && j.fetch->reads_file_) return true;
    j.fetch->state_.store(block_fetch::state::failed, std::memory_order_release);
    return false;
}

void block_reader::put(block_store& store, const block_key& key, std::span<const std::byte> object,
                       bool was_bad) {
    if (is_paused()) return;
    const int code = store.put(key, object, was_bad, settings_.wait_ns * puts_wait_longer);
    if (code == 0) ++counters_.puts;
    else if (code != -ENOSPC) count_failure("put", code);  // a full store works
}

// Failures of what was under way when a pause began tell nothing new. After a pause one is enough
// for the next: a store that is gone for long costs a reader one wait in each.
void block_reader::count_failure(const char* verb, std::int64_t code) {
    ++counters_.errors;
    {
        const std::lock_guard lock(mutex_);
        if (is_paused() || ++failures_ < most_failures) return;
        failures_ = most_failures - 1;
        paused_until_ns_ = host_now_ns() + settings_.pause_ns;
        ++counters_.pauses;
    }
    if (said_.exchange(true)) return;
    settings_.say("block_store: the store failed " + std::to_string(most_failures) +
                  " times one after the other, the last time in a " + verb + ": " +
                  error_text(static_cast<int>(code)) +
                  "; files are read without it, and it is "
                  "tried again every " +
                  std::to_string(settings_.pause_ns / 1'000'000'000) +
                  " s; look after penstock-agent");
}

}  // namespace penstock::host
