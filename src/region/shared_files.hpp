// The files that the regions and mounts of a hub share: of each file its home, the masks of its
// pages, and how many programs write it. To the hub it is the observer that tells regions and
// mounts what kernels change by write and truncate.
#pragma once

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "hub/hub.hpp"
#include "region/page_masks.hpp"

namespace penstock::region {

class shared_home;

// Thread-safe. Made when the first region or mount of the hub is made: before, there is none to
// tell.
class shared_files final : public host::hub_part, public host::write_observer {
public:
    explicit shared_files(host::hub& shared);
    ~shared_files() override;
    static shared_files& of(host::hub& shared) { return shared.part<shared_files>(); }

    [[nodiscard]] host::hub& hub() const { return hub_; }

    // The home of this file, made if there is none. 0 or a negative errno.
    int open_home(host::environment& env, const std::string& path, bool writable,
                  std::shared_ptr<shared_home>& out);
    // Null: no region is of the file. A load where there are no regions at all.
    std::shared_ptr<shared_home> find_home(const file_key& file);

    // The masks of a file, for all regions, kernels and mounts. Made if there are none.
    std::shared_ptr<page_masks> masks_of(const file_key& file);
    // Null if there are none.
    std::shared_ptr<page_masks> masks_in_use(const file_key& file);

    // How many programs write the file now, or one of many others. Also of files of which there is
    // no region yet: one may come while they are written.
    std::atomic<std::uint32_t>& writers_of(const file_key& file);

private:
    std::int64_t change(host::environment& env, int fd, const host::file_change& change,
                        const host::change_step& doing) override;
    std::int64_t write(const host::view_list& mounts, const file_key& key,
                       const host::file_change& change, const host::change_step& doing);

    host::hub& hub_;
    std::array<std::atomic<std::uint32_t>, 64> writers_{};

    std::mutex homes_mutex_;
    std::map<std::pair<file_key, host::environment*>, std::weak_ptr<shared_home>> homes_;
    std::atomic<std::uint64_t> live_homes_{0};

    std::mutex masks_mutex_;
    std::map<file_key, std::weak_ptr<page_masks>> masks_;
    std::atomic<std::uint64_t> live_masks_{0};
};

// A file as mounts and programs name it.
struct client_file {
    shared_files& with;
    file_key key;
};

}  // namespace penstock::region
