// Memory for the versions of pages, by the number of devices that change pages of one file: the map
// of regions (region/version_map.hpp) takes the engine's own steps, and its lists are counted. No
// bytes of pages move.
#include <algorithm>

#include "cases.hpp"
#include "penstock/base/hash.hpp"
#include "region/version_map.hpp"

namespace penstock::bench {

namespace {

using consistency::place;
using region::page_range;
using region::page_state;
using region::version_map;

constexpr std::uint32_t rounds = 4;

// A file of which every device has all pages, and of which they change some, each its own choice.
struct changed_file {
    version_map map;
    std::uint64_t seed;
    std::uint64_t one_in;  // so many pages
    consistency::stamp now = 0;

    [[nodiscard]] region::page_list choose(place device) const {
        region::page_list out;
        for (std::uint64_t page = 0; page < map.pages(); ++page)
            if (mix64((page << 16) + (now << 4) + device + (seed << 48)) % one_in == 0)
                out.push_back(page);
        return out;
    }
    void release(place device) {
        const region::page_list changed = choose(device);
        ++now;
        map.change(changed, [&](page_state& p) { consistency::release(p, device, now); });
    }
    // Does what the device needs, to the end.
    void acquire(place device) {
        ++now;
        const page_range all{0, map.pages()};
        map.change(all, [&](page_state& p) { consistency::acquire(p, device, now); });
        const region::page_list wanted = map.pages_where(all, [&](const page_state& p) {
            return consistency::has(p.stale, device) || p.pending != 0;
        });
        map.change(wanted, [&](page_state& p) {
            for (;;) {
                const consistency::step next = consistency::next_for_access(p, device);
                if (next.kind == consistency::work::nothing) return;
                consistency::begin(p, next);
                consistency::finish(p, next, true);
            }
        });
    }
};

// Percentages of the file's bytes that the map takes.
struct shares_of_file {
    double most = 0;     // after any release or acquire
    double settled = 0;  // at the end, when no device has changed anything since all acquired
};

shares_of_file shares_with(std::uint64_t bytes, place devices, std::uint64_t one_in,
                           std::uint64_t seed) {
    page_state first;
    for (place holder = 0; holder <= devices; ++holder) first.present |= consistency::only(holder);
    changed_file file{version_map(bytes / region::page_bytes, first), seed, one_in};
    shares_of_file out;
    const auto look = [&] {
        out.settled = 100.0 * static_cast<double>(file.map.bytes()) / static_cast<double>(bytes);
        out.most = std::max(out.most, out.settled);
    };
    for (std::uint32_t round = 0; round < rounds; ++round) {
        for (place device = 1; device <= devices; ++device) file.release(device), look();
        for (place device = 1; device <= devices; ++device) file.acquire(device), look();
    }
    file.acquire(1);  // which finds nothing changed, and pages alike
    look();
    return out;
}

}  // namespace

void versions_case(context& here) {
    const std::uint64_t bytes =
        std::max<std::uint64_t>(here.file_bytes(256 * mib), region::chunk_bytes) /
        region::chunk_bytes * region::chunk_bytes;
    const double plain = 100.0 * sizeof(page_state) / region::page_bytes;
    for (const std::uint64_t one_in : {1000, 100, 2})
        for (const place devices : {1u, 2u, 4u, 8u}) {
            measured shares;
            series settled;
            for (std::uint64_t seed = 0; seed < here.repeats(3); ++seed) {
                const shares_of_file got = shares_with(bytes, devices, one_in, seed);
                shares.ours.add(got.most);
                shares.baseline.add(plain);
                settled.add(got.settled);
            }
            here.add("versions",
                     text_of("memory for versions, %s, each changes one page in %llu at a time",
                             counted(devices, "device").c_str(),
                             static_cast<unsigned long long>(one_in)),
                     region::page_bytes, "% of the file", shares, "a record for each page",
                     text_of("host memory, the most at any time; %.4f %% once all have acquired; "
                             "a record of up to %u devices has %zu bytes",
                             settled.median(), region::most_devices, sizeof(page_state)),
                     "cpu");
        }
}

}  // namespace penstock::bench
