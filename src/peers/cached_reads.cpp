#include "peers/cached_reads.hpp"

#include <algorithm>

#include "os/file_kind.hpp"
#include "penstock/group/lane.hpp"

namespace penstock::host {

namespace {

// Loans begin and end at multiples of this, or at the file's end: what the operating system keeps.
constexpr std::uint64_t grain_bytes = 4096;

// The slot of a file, lent.
class lent_slot {
public:
    lent_slot(file_registry& files, const slot_life& life) : files_(files), life_(life) {}
    ~lent_slot() { files_.end_loan(life_); }
    lent_slot(const lent_slot&) = delete;
    lent_slot& operator=(const lent_slot&) = delete;

private:
    file_registry& files_;
    const slot_life life_;
};

// A loan that has begun, until its end.
class begun_loan {
public:
    begun_loan(page_lender& lender, loan& peer_read) : lender_(lender), peer_read_(peer_read) {}
    ~begun_loan() { lender_.end_loan(peer_read_); }
    begun_loan(const begun_loan&) = delete;
    begun_loan& operator=(const begun_loan&) = delete;

private:
    page_lender& lender_;
    loan& peer_read_;
};

// Waits until every part is as wanted. False: it took too long.
template <typename Wanted>
bool await_parts(const loan& peer_read, const Wanted& wanted) {
    const std::uint64_t begun_ns = lane{}.now_ns();
    for (std::uint32_t part = 0, round = 0; part < peer_read.order.parts();) {
        if (wanted(engine::look_at_part(&peer_read.order.states[part]))) {
            ++part;
            continue;
        }
        if (round % 16 == 15 && lane{}.now_ns() - begun_ns > loan_wait_ns) return false;
        lane{}.pause(round++);
    }
    return true;
}

// Of the bytes [begin, end) of the loan, those of parts that were copied.
std::uint64_t bytes_there(const loan& peer_read, std::uint64_t begin, std::uint64_t end) {
    std::uint64_t sum = 0;
    for (std::uint32_t part = 0; part < peer_read.order.parts(); ++part) {
        const std::uint64_t first = std::max(begin, part * peer_read.order.part_bytes),
                            last = std::min(end, (part + 1) * peer_read.order.part_bytes);
        if (first < last &&
            engine::look_at_part(&peer_read.order.states[part]) == engine::part_there)
            sum += last - first;
    }
    return sum;
}

}  // namespace

cached_reads::cached_reads(environment& env, hub& shared, file_registry& files, page_lender& lender,
                           const runtime_ref& fs, std::optional<int> gpu)
    : env_(env), hub_(shared), files_(files), lender_(lender), fs_(fs), gpu_(gpu) {
    hub_.enter(*this);
}

cached_reads::~cached_reads() { hub_.leave(*this); }

bool cached_reads::lend(const file_identity& now, lent_file& out) {
    slot_life life;
    if (!files_.lend(now, life)) return false;
    out = {&fs_, gpu_, life.slot, life.generation, std::make_shared<lent_slot>(files_, life)};
    return true;
}

bool cached_reads::is_lent_as_is(const lent_file& lent) {
    return files_.is_lent_as_is({lent.slot, lent.generation});
}

// Reads what is missing, while the rest is copied. False: nothing is there, or not all of the range
// is to be had.
bool cached_reads::complete(const loan& peer_read, int fd) {
    if (!await_parts(peer_read, [](std::uint32_t state) { return state != engine::part_unknown; }))
        return false;
    const std::uint32_t parts = peer_read.order.parts();
    const auto is_missing = [&](std::uint32_t part) {
        return engine::look_at_part(&peer_read.order.states[part]) == engine::part_missing;
    };
    std::uint32_t missing = 0;
    for (std::uint32_t part = 0; part < parts; ++part) missing += is_missing(part) ? 1 : 0;
    if (missing == parts) return false;
    if (missing != 0) read_nothing_ahead(fd);
    for (std::uint32_t first = 0, end = 0; first < parts; first = end) {
        for (end = first + 1; is_missing(first) && end < parts && is_missing(end);) ++end;
        if (!is_missing(first)) continue;
        const std::uint64_t begin = first * peer_read.order.part_bytes,
                            count =
                                std::min(end * peer_read.order.part_bytes, peer_read.order.bytes) -
                                begin;
        if (read_all(env_, fd, peer_read.order.to + begin, count, peer_read.order.offset + begin) !=
            static_cast<std::int64_t>(count))
            return false;
    }
    return await_parts(peer_read, engine::is_settled);
}

std::uint64_t cached_reads::read(int fd, std::uint64_t offset, std::uint64_t bytes,
                                 const byte_sink& use) {
    const std::int64_t told = env_.size_bytes(fd);
    const std::uint64_t size = told < 0 ? 0 : static_cast<std::uint64_t>(told);
    if (offset >= size || bytes == 0) return 0;
    const std::uint64_t end = offset + std::min(bytes, size - offset);
    loan peer_read;
    peer_read.order.offset = offset / grain_bytes * grain_bytes;
    peer_read.order.bytes = std::min((end + grain_bytes - 1) / grain_bytes * grain_bytes, size) -
                            peer_read.order.offset;
    peer_read.order.part_bytes = std::min(usual_part_bytes, fs_.view.page_bytes());
    if (peer_read.order.bytes > most_loan_bytes ||
        is_in_memory(env_, fd, peer_read.order.offset, peer_read.order.bytes))
        return 0;
    file_facts facts;
    slot_life life;
    if (env_.facts(fd, facts) != 0 || facts.identity.size_bytes != size ||
        may_change_unseen(facts) || !files_.lend(facts.identity, life))
        return 0;
    peer_read.hold = std::make_shared<lent_slot>(files_, life);
    peer_read.order.slot = life.slot;
    peer_read.order.generation = life.generation;
    if (!lender_.begin_loan(fs_, peer_read)) return 0;
    const begun_loan until_here(lender_, peer_read);
    const bool good = complete(peer_read, fd) && files_.is_lent_as_is(life);
    const std::uint64_t first = offset - peer_read.order.offset,
                        served = good ? bytes_there(peer_read, first, first + end - offset) : 0;
    if (served != 0) use(peer_read.order.to + first, end - offset, served);
    return served;
}

}  // namespace penstock::host
