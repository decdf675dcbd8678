// What a strict program sees of the headers: compiled with many warnings as errors, by each
// compiler that is there (CMakeLists.txt), and not linked.
#include "penstock/penstock.hpp"
#include "penstock/penstock.hpp"

#if defined(__SIZEOF_INT128__) && !defined(__STRICT_ANSI__)
// With extensions of the language it counts as an integer; text is of 64 bits.
static_assert(!penstock::text::printable<__int128>);
#endif

namespace strict {

struct every_call {
    int fd;
    std::byte* buffer;
    const std::uint64_t* rows;

    template <penstock::group Group>
    void operator()(const Group& g, const penstock::runtime_ref& fs, std::uint64_t index) const {
        const auto at = static_cast<std::int64_t>(index);
        std::int64_t sum = penstock::read(g, fs, fd, buffer, 16, at);
        sum += penstock::write(g, fs, fd, buffer, 16, at);
        sum += penstock::append(g, fs, fd, buffer, 16);
        sum += penstock::prefetch(g, fs, fd, at, 16) + penstock::msync(g, fs, fd, at, 16);
        sum += penstock::advise(g, fs, fd, penstock::advice::will_need, at, 16);
        sum += penstock::unmap(g, fs, penstock::map(g, fs, fd, at, 16));
        sum += penstock::unmap(g, fs, penstock::map_write(g, fs, fd, at, 16));
        const penstock::view<double> elements(fs, fd);
        double total = 0;
        sum += elements.for_each(g, 0, index, [&](std::uint64_t, double x) { total += x; });
        sum += penstock::gather(g, elements, rows, 2, reinterpret_cast<double*>(buffer));
        sum += penstock::gather(g, penstock::row_view(fs, fd, {.row_bytes = 16}), rows, 1, buffer);
        const penstock::writable_view<double> changed(fs, fd, 2);
        changed[0] = total;
        changed[1] = changed.atomic_add(0, static_cast<double>(sum));
        for (const float x : penstock::file_range<float>(fs, fd)) total += static_cast<double>(x);
        char line[32];
        penstock::text::format(g, line, sizeof line, sum, ' ', penstock::text::hex{index}, "\n");
        penstock::truncate(g, fs, fd, at);
        penstock::fsync(g, fs, fd);
        penstock::close(g, fs, fd);
    }
};

int launch_every_call(penstock::runtime& rt, const every_call& work);
int launch_every_call(penstock::runtime& rt, const every_call& work) {
    return penstock::launch(rt, 4, work) + penstock::launch_on(rt, 0, 4, work);
}

}  // namespace strict
