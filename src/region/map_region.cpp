// Makes regions: checks what is asked for, chooses the placement, and maps.
#include <algorithm>
#include <cerrno>
#include <utility>

#include "os/exceptions.hpp"
#include "os/file_kind.hpp"
#include "os/pinnable_memory.hpp"
#include "region/in_place_region.hpp"
#include "region/mapped_region.hpp"
#include "region/placement.hpp"
#include "runtime/runtime_state.hpp"

namespace penstock {

namespace {

using region::page_bytes;

status refused(int code, const std::string& path, const std::string& reason) {
    return {code, "region of '" + path + "': " + reason};
}

// The part of the file that is meant: `bytes` 0 for all up to its end.
status settle_range(const std::string& path, std::uint64_t size, std::uint64_t offset,
                    std::uint64_t& bytes) {
    if (offset % page_bytes != 0)
        return refused(-EINVAL, path,
                       "offset " + std::to_string(offset) + " is no multiple of " +
                           std::to_string(page_bytes));
    if (size == 0)
        return refused(-EINVAL, path,
                       "the file is empty; a region needs bytes that are there, so make it as long "
                       "as it is to be (truncate)");
    if (bytes == 0 && offset < size) bytes = size - offset;
    if (offset < size && bytes <= size - offset) return {};
    return refused(-EINVAL, path,
                   std::to_string(bytes) + " bytes from " + std::to_string(offset) +
                       " on do not lie in a file of " + std::to_string(size) +
                       " bytes; map what is there, or make the file longer first (truncate)");
}

using logger = std::function<void(const std::string&)>;

// A region that is to be made.
struct order {
    const host::runtime_state& state;
    const std::string& path;
    const region_options& settings;
    std::shared_ptr<region::shared_home> home;
    std::uint64_t offset, bytes;
    bool writable;
    logger say;
};

// Only for memory of a device, unless a test says otherwise.
region::direct_order direct_of(const host::runtime_state& state) {
    const options& settings = state.settings;
    if (settings.direct_storage == direct_mode::off) return {};
    if (state.hooks.direct != nullptr) return {state.hooks.direct, settings.direct_storage};
    if (!state.device->is_gpu()) return {};
    return {&host::direct_storage::of_process(settings.cufile_library), settings.direct_storage};
}

status make_filled(const order& o, std::unique_ptr<region::region_body>& out) {
    const region::page_range pages{o.offset / page_bytes,
                                   (o.offset + o.bytes + page_bytes - 1) / page_bytes};
    const region::memory_shape shape{pages.end - pages.begin, o.writable,
                                     o.settings.device_bytes.value_or(UINT64_MAX)};
    status why;
    auto memory = o.state.device->is_gpu()
                      ? region::make_gpu_memory(o.state.settings.device, shape, why)
                      : region::make_cpu_memory(shape, why);
    if (memory == nullptr)
        return refused(
            why.code, o.path,
            why.message + (why.code != -ENOMEM ? ""
                           : o.writable        ? "; map a smaller part of the file"
                                               : "; map a smaller part of the file, or read it in "
                                                 "place (region_options::placement)"));
    auto mapped = std::make_unique<region::mapped_region>(
        o.home, std::move(memory), o.path, o.say,
        std::chrono::milliseconds(o.state.settings.request_wait_ms));
    if (const int code =
            mapped->join(pages, o.offset + o.bytes, o.settings, o.writable, direct_of(o.state));
        code != 0)
        return refused(code, o.path,
                       "as many regions share the file as can, " +
                           std::to_string(region::most_devices) + "; close one");
    if (const std::int64_t code = mapped->acquire({}, nullptr); code < 0)
        return refused(static_cast<int>(code), o.path, error_text(code));
    out = std::move(mapped);
    return {};
}

// An error is without the subject.
status make_in_place(const order& o, region_placement where,
                     std::unique_ptr<region::region_body>& out) {
    status why;
    auto reader = o.state.device->is_gpu()
                      ? region::make_gpu_reader(o.state.settings.device,
                                                where == region_placement::in_place, why)
                      : region::make_cpu_reader();
    if (reader == nullptr) return why;
    auto placed = std::make_unique<region::in_place_region>(
        region::file_part{o.home, o.path, o.offset, o.bytes}, std::move(reader), o.say);
    if (status s = placed->open(); !s.ok()) return s;
    out = std::move(placed);
    return {};
}

// What the choice depends on; a plain wish for filled depends on nothing.
status look_around(const order& o, region::placement_facts& out) {
    out.wanted = o.settings.placement;
    if (out.wanted == region_placement::filled) return {};
    out.bytes = o.bytes;
    out.writable = o.writable;
    out.promote_hot = o.settings.promote_hot;
    out.outside_writers = o.settings.outside_writers;
    out.device_bytes = o.settings.device_bytes.value_or(UINT64_MAX);
    out.pinnable_bytes = host::pinnable_bytes();
    out.changes_elsewhere = o.home->env().changes_elsewhere(o.home->handle());
    out.has_mounts = !o.state.hooks.shared->views().empty();
    if (!o.state.device->is_gpu()) return {};
    return region::look_at_gpu(o.state.settings.device, out.device);
}

status place(const order& o, std::unique_ptr<region::region_body>& out) {
    region::placement_facts facts;
    region::placement_choice choice;
    if (status s = look_around(o, facts); !s.ok()) return refused(s.code, o.path, s.message);
    if (status s = region::choose_placement(facts, choice); !s.ok())
        return refused(s.code, o.path, s.message);
    const bool automatic = facts.wanted == region_placement::automatic;
    while (out == nullptr && choice.where != region_placement::filled) {
        const status s = make_in_place(o, choice.where, out);
        if (s.ok()) break;
        if (!automatic) return refused(s.code, o.path, s.message);
        // The next choice is another one.
        status& tried =
            choice.where == region_placement::system ? facts.system_tried : facts.in_place_tried;
        tried = {s.code, "failed: " + s.message};
        if (const status next = region::choose_placement(facts, choice); !next.ok())
            return refused(next.code, o.path, next.message);
    }
    if (out == nullptr)
        if (status s = make_filled(o, out); !s.ok()) return s;
    if (automatic)
        o.say("region of '" + o.path + "': " + region::name_of(choice.where) + ", because " +
              choice.reason);
    out->placed(choice.where, std::move(choice.reason));
    return {};
}

}  // namespace

status map_region(runtime& rt, const std::string& path, std::uint64_t offset, std::uint64_t bytes,
                  protection access, const region_options& settings,
                  std::unique_ptr<file_region>& out) try {
    out.reset();
    if (rt.process_code() != 0)
        return refused(-ECHILD, path,
                       "the runtime belongs to the parent of this process; make one of the child's "
                       "own after fork()");
    if (settings.device >= rt.device_count())
        return refused(-EINVAL, path,
                       "device " + std::to_string(settings.device) +
                           " of a region is not there, for the runtime has " +
                           std::to_string(rt.device_count()) + "; give one from 0 on");
    const host::runtime_state& state = rt.state(settings.device);
    const bool writable = access == protection::read_write;
    if (writable && !state.settings.writable)
        return refused(
            -EROFS, path,
            "the runtime only reads; set options::writable (PENSTOCK_WRITABLE) to change files");
    std::shared_ptr<region::shared_home> home;
    auto& files = region::shared_files::of(*state.hooks.shared);
    if (const int code = files.open_home(*state.hooks.env, path, writable, home); code != 0)
        return refused(code, path, host::why_not_opened(code, path, writable));
    const std::int64_t size = home->size_bytes();
    if (size < 0) return refused(static_cast<int>(size), path, error_text(size));
    if (status s = settle_range(path, static_cast<std::uint64_t>(size), offset, bytes); !s)
        return s;
    const logger say = [log = state.log](const std::string& line) { log->say(line); };
    std::unique_ptr<region::region_body> made;
    if (status s =
            place({state, path, settings, std::move(home), offset, bytes, writable, say}, made);
        !s.ok())
        return s;
    out = std::make_unique<file_region>(std::move(made));
    return {};
} catch (...) {
    return host::status_of_exception("region of '" + path + "': ");
}

}  // namespace penstock
