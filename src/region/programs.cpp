#include "region/programs.hpp"

#include <algorithm>
#include <cerrno>
#include <numeric>
#include <vector>

#include "os/file_kind.hpp"
#include "penstock/base/hash.hpp"
#include "region/shared_home.hpp"

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

// Of what programs stored behind the new end, before it is the end, nothing must come after it.
std::int64_t cut(const host::view_list& mounts, const file_key& key, std::uint64_t end,
                 const host::change_step& doing) {
    for (const auto& mount : mounts) mount->collect(key);
    const std::int64_t result = doing();
    for (const auto& mount : mounts) mount->take_away(key, end, 0);
    return result;
}

}  // namespace

shared_files::shared_files(host::hub& shared) : hub_(shared) { hub_.add_observer(*this); }
shared_files::~shared_files() { hub_.remove_observer(*this); }

int shared_files::open_home(host::environment& env, const std::string& path, bool writable,
                            std::shared_ptr<shared_home>& out) {
    host::file_facts facts;
    const int fd = host::open_regular(env, path, facts);
    if (fd < 0) return fd;
    const int writing = writable ? env.open_writing(fd) : 0;
    if (writable && writing >= 0) env.close(writing);
    if (writing < 0) {
        env.close(fd);
        return writing;
    }
    const std::lock_guard lock(homes_mutex_);
    auto& known = homes_[{file_key{facts.identity.device, facts.identity.inode}, &env}];
    out = known.lock();
    if (out != nullptr) env.close(fd);
    else known = out = std::make_shared<shared_home>(env, *this, live_homes_, fd, facts);
    std::erase_if(homes_, [](const auto& entered) { return entered.second.expired(); });
    return 0;
}

std::shared_ptr<shared_home> shared_files::find_home(const file_key& file) {
    // A home that is being made now is found by a writer that looks again after it wrote
    // (program_write::wrote).
    if (live_homes_ == 0) return nullptr;
    const std::lock_guard lock(homes_mutex_);
    const auto found = homes_.lower_bound({file, nullptr});
    return found == homes_.end() || found->first.first != file ? nullptr : found->second.lock();
}

std::shared_ptr<page_masks> shared_files::masks_of(const file_key& file) {
    const std::lock_guard hold(masks_mutex_);
    std::weak_ptr<page_masks>& known = masks_[file];
    std::shared_ptr<page_masks> out = known.lock();
    if (out != nullptr) return out;
    out = std::shared_ptr<page_masks>(new page_masks, [this](const page_masks* gone) {
        delete gone;
        --live_masks_;
    });
    ++live_masks_;
    known = out;
    std::erase_if(masks_, [](const auto& entered) { return entered.second.expired(); });
    return out;
}

std::shared_ptr<page_masks> shared_files::masks_in_use(const file_key& file) {
    if (live_masks_ == 0) return nullptr;  // a reader takes no lock
    const std::lock_guard hold(masks_mutex_);
    const auto found = masks_.find(file);
    return found == masks_.end() ? nullptr : found->second.lock();
}

std::atomic<std::uint32_t>& shared_files::writers_of(const file_key& file) {
    return writers_[mix64(file.inode ^ file.device << 32) % writers_.size()];
}

// To programs a kernel that writes is as a region that releases (programs.hpp): a page of which
// they changed something in a mapping is written back around the bytes that the kernel wrote. To
// regions it is as a program that writes.
std::int64_t shared_files::change(host::environment& env, int fd, const host::file_change& change,
                                  const host::change_step& doing) {
    host::file_facts facts;
    if (env.facts(fd, facts) != 0) return doing();
    const file_key key{facts.identity.device, facts.identity.inode};
    const host::view_list mounts = hub_.views();
    const std::uint64_t old_end = facts.identity.size_bytes,
                        first = change.cuts ? std::min(change.offset, old_end) : change.offset;
    program_write access({*this, key}, program_access::kind::direct, first,
                         change.cuts ? UINT64_MAX : change.bytes);
    const std::int64_t result = mounts.empty() ? doing()
                                : change.cuts  ? cut(mounts, key, first, doing)
                                               : write(mounts, key, change, doing);
    access.wrote(first, change.cuts ? UINT64_MAX : change.bytes);
    return result;
}

// The bytes are in the file then, whatever becomes of what programs have stored: that is an error
// of theirs, and masks stay for it as after a release.
std::int64_t shared_files::write(const host::view_list& mounts, const file_key& key,
                                 const host::file_change& change, const host::change_step& doing) {
    const written_part part(change.offset, change.bytes);
    const std::shared_ptr<page_masks> masks = masks_of(key);
    masks->add(&part, part.pages, part.marks.data());
    const std::int64_t result = doing();
    masks->settle(&part, part.pages);
    bool taken = true;
    for (const auto& mount : mounts)
        taken = mount->take_away(key, change.offset, change.bytes) == 0 && taken;
    // Else they stay until the kernel asks for the pages anew. A later owner at the address of
    // `part` finds them settled, and takes no harm.
    if (taken) masks->remove(&part, part.pages);
    return result;
}

program_access::program_access(const client_file& file, kind way, std::uint64_t offset,
                               std::uint64_t bytes)
    : file_(file), home_(file.with.find_home(file.key)) {
    if (home_ != nullptr) home_->admit_program(offset, bytes);
    if (way != kind::fetch) return;
    const page_range whole{(offset + page_bytes - 1) / page_bytes, (offset + bytes) / page_bytes};
    if (whole.empty()) return;
    if (const std::shared_ptr<page_masks> masks = file.with.masks_in_use(file.key);
        masks != nullptr)
        masks->forget_settled(whole);
}

std::uint64_t program_access::read_devices(int fd, std::uint64_t offset, std::uint64_t bytes,
                                           const byte_sink& use) const {
    if (home_ != nullptr)
        if (const std::uint64_t got = home_->read_for_program(fd, offset, bytes, use); got != 0)
            return got;
    host::hub& hub = file_.with.hub();
    if (!hub.known.may_have(file_.key) || file_.with.writers_of(file_.key) != 0 ||
        hub.passed.look(file_.key).writers != 0)
        return 0;
    return hub.read_cached(fd, offset, bytes, use);
}

write_count::write_count(const client_file& file) : count_(file.with.writers_of(file.key)) {
    ++count_;
}
write_count::~write_count() { --count_; }

program_write::program_write(const client_file& file, kind way, std::uint64_t offset,
                             std::uint64_t bytes)
    : program_access(file, way, offset, bytes), counted_(file) {}

// A region that came meanwhile must be told: it may have read the file before it was written. One
// that comes after this reads what was written.
void program_write::wrote(std::uint64_t offset, std::uint64_t bytes) {
    const std::shared_ptr<shared_home> home =
        home_ != nullptr ? home_ : file_.with.find_home(file_.key);
    if (home != nullptr) home->wrote_by_program(offset, bytes);
}

std::int64_t program_write::write_back(const client_file& file, int fd, const std::byte* from,
                                       std::uint64_t bytes, std::uint64_t offset) {
    const write_count counted(file);
    const std::shared_ptr<shared_home> home = file.with.find_home(file.key);
    // Those that come while it is written wait for it: the same for all.
    const std::int64_t written =
        file.with.masks_of(file.key)->write_around(fd, from, bytes, offset);
    if (home != nullptr) home->wrote_by_program(offset, bytes);
    else
        program_write(file, kind::direct, offset, 0)
            .wrote(offset, bytes);  // a region may have come meanwhile
    return written;
}

}  // namespace penstock::region
