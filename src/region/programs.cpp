#include "region/programs.hpp"

#include "region/shared_home.hpp"

namespace penstock::region {

program_access::program_access(const client_file& file, kind how, std::uint64_t offset,
                               std::uint64_t bytes)
    : file_(file), home_(file.with.find_home(file.key)) {
    if (home_ != nullptr) home_->admit_program(offset, bytes);
    if (how != kind::fetch) return;
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
    if (!hub.known.may_have(file_.key) || file_.with.writers_of(file_.key) != 0) return 0;
    return hub.read_cached(fd, offset, bytes, use);
}

write_count::write_count(const client_file& file) : count_(file.with.writers_of(file.key)) {
    ++count_;
}
write_count::~write_count() { --count_; }

program_write::program_write(const client_file& file, kind how, std::uint64_t offset,
                             std::uint64_t bytes)
    : program_access(file, how, offset, bytes), counted_(file) {}

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
