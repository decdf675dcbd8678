// Ranges of elements for iterators, made by the host.
#include "penstock/file_iterator.hpp"

#include <cerrno>
#include <string>

#include "runtime/runtime_state.hpp"

namespace penstock::detail {

namespace {

status no_range(int code, const std::string& why) { return {code, "elements of a file: " + why}; }

// The file is looked at, and the record that its table is found by.
status look(host::runtime_state& state, int fd, std::uint64_t& size_bytes,
            engine::file_record& record) {
    const engine::cache_view& c = state.ref.view;
    file_stat facts{};
    int code = fd < 0 || engine::descriptor_access(fd) == engine::may_write
                   ? -EBADF
                   : state.device->stat(state.ref, fd, &facts);
    if (code == 0)
        code = state.device->download(&record, &c.file_records[engine::descriptor_slot(c, fd)],
                                      sizeof record);
    if (code == 0) {
        size_bytes = facts.size_bytes;
        return {};
    }
    return no_range(code, "descriptor " + std::to_string(fd) + ": " + error_text(code) +
                              (code == -EBADF ? "; open the file on this device for reading" : ""));
}

}  // namespace

status source_of_file(runtime& rt, int fd, std::uint64_t element_bytes,
                      const range_options& settings, engine::element_source& out) try {
    if (const int code = rt.process_code(); code != 0)
        return no_range(code, "the runtime belongs to the parent of this process");
    if (settings.device >= rt.device_count())
        return no_range(-EINVAL, "device: " + std::to_string(settings.device) + " of " +
                                     std::to_string(rt.device_count()) + "; give a smaller number");
    if (settings.offset_bytes % element_bytes != 0)
        return no_range(-EINVAL, "offset_bytes: " + std::to_string(settings.offset_bytes) +
                                     " is no multiple of the element's " +
                                     std::to_string(element_bytes) + " bytes; give one");
    host::runtime_state& state = rt.state(settings.device);
    std::uint64_t size_bytes = 0;
    engine::file_record record{};
    if (status s = look(state, fd, size_bytes, record); !s) return s;
    const engine::cache_view& c = state.ref.view;
    const engine::file_handle f{size_bytes, record.table, engine::descriptor_slot(c, fd),
                                engine::descriptor_generation(fd), record.two_level != 0};
    out = engine::make_source(c, state.resident_view, f, record.page_count, size_bytes,
                              settings.offset_bytes, element_bytes);
    return {};
} catch (...) {
    return host::status_of_exception("elements of a file: ");
}

}  // namespace penstock::detail
