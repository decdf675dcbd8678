// Makes a library: builds its hash tables, and takes all steps in their order.
#include "index_library.hpp"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>

#include "common/message.hpp"
#include "common/threads.hpp"

namespace penstock::collage {

namespace {

constexpr std::uint64_t sample_tiles = 32768;
constexpr std::uint32_t sample_tables = 8;
constexpr std::uint32_t sample_projections = sample_tables * projections_per_table;
constexpr double wanted_others = 8;
constexpr std::uint64_t tiles_per_read = 4096;
// Threads build one table each and hold all its entries; more threads than this allows would take
// too much memory.
constexpr std::uint64_t most_sorting_bytes = std::uint64_t{4} << 30;

struct keyed_tile {
    std::uint64_t key;
    std::uint32_t rank;
    std::uint32_t id;
    auto operator<=>(const keyed_tile&) const = default;
};

// How many others a tile finds in its buckets, a table on average and bucket_cap at most: the tenth
// of the sample that finds least finds this or less. The tiles of the sample stand for `tiles_each`
// of all.
double poorest_tenth(const std::vector<std::int32_t>& sums, std::uint64_t sampled,
                     double tiles_each, const lsh_family& family) {
    std::vector<std::pair<std::uint64_t, std::uint32_t>> keys(sampled);  // and whose
    std::vector<double> found(sampled);
    for (std::uint32_t t = 0; t < sample_tables; ++t) {
        const std::uint32_t first = t * projections_per_table;
        for (std::uint32_t i = 0; i < sampled; ++i)
            keys[i] = {key_of(t, &sums[std::size_t{i} * sample_projections + first],
                              &family.offsets[first], family.width),
                       i};
        std::sort(keys.begin(), keys.end());
        for (std::uint64_t i = 0; i < sampled;) {
            std::uint64_t end = i;
            while (end < sampled && keys[end].first == keys[i].first) ++end;
            const double others =
                std::min<double>(bucket_cap, static_cast<double>(end - i - 1) * tiles_each);
            for (; i < end; ++i) found[keys[i].second] += others / sample_tables;
        }
    }
    const auto tenth = found.begin() + static_cast<std::ptrdiff_t>(sampled / 10);
    std::nth_element(found.begin(), tenth, found.end());
    return *tenth;
}

// One table, all tiles.
class table_builder {
public:
    table_builder(const staged_file& tile_features, const library_header& h,
                  const lsh_family& family)
        : features_(tile_features),
          h_(h),
          family_(family),
          entries_(h.tile_count),
          read_(tiles_per_read * features) {}

    status build(std::uint32_t table, const std::string& path, std::uint64_t& kept,
                 const apps::first_error& errors) {
        for (std::uint64_t first = 0; first < h_.tile_count; first += tiles_per_read) {
            if (errors.stop()) return {};
            const std::uint64_t count = std::min(tiles_per_read, h_.tile_count - first);
            const std::uint64_t bytes = count * feature_bytes;
            if (status s = features_.read(read_.data(), bytes, first * feature_bytes); !s) return s;
            for (std::uint64_t i = 0; i < count; ++i) {
                const auto id = static_cast<std::uint32_t>(first + i);
                entries_[id] = {key(table, &read_[i * features]), rank_of(table, id), id};
            }
        }
        std::sort(entries_.begin(), entries_.end());
        return write(table, path, kept);
    }

private:
    // By slot first, as the table is laid out; within a slot by fingerprint, which is what is left
    // of the key.
    [[nodiscard]] std::uint64_t key(std::uint32_t table, const std::uint16_t* of) const {
        std::int32_t sums[projections_per_table];
        const std::uint32_t first = table * projections_per_table;
        project<projections_per_table>(&family_.coefficients[first], of, sums);
        const std::uint64_t key = key_of(table, sums, &family_.offsets[first], family_.width);
        return std::uint64_t{slot_of(key, h_.slots)} << 32 | static_cast<std::uint32_t>(key);
    }

    // Of each bucket the first entries.
    [[nodiscard]] status write(std::uint32_t table, const std::string& path,
                               std::uint64_t& kept) const {
        std::vector<char> image(entries_at(h_.slots) + entries_.size() * sizeof(table_entry));
        auto* const begins = reinterpret_cast<std::uint32_t*>(image.data() + table_head_bytes);
        auto* const out = reinterpret_cast<table_entry*>(image.data() + entries_at(h_.slots));
        std::uint32_t slot = 0, count = 0, in_bucket = 0;
        for (std::size_t i = 0; i < entries_.size(); ++i) {
            const std::uint64_t key = entries_[i].key;
            in_bucket = i != 0 && key == entries_[i - 1].key ? in_bucket + 1 : 0;
            if (in_bucket >= bucket_cap) continue;
            for (; slot <= key >> 32; ++slot) begins[slot] = count;
            out[count++] = {static_cast<std::uint32_t>(key), entries_[i].id};
        }
        for (; slot <= h_.slots; ++slot) begins[slot] = count;
        kept = count;
        const table_head head{table_magic, table, h_.slots, count, h_.tile_count};
        std::memcpy(image.data(), &head, sizeof head);
        const std::uint64_t bytes = entries_at(h_.slots) + count * sizeof(table_entry);
        staged_file file;
        if (status s = file.create(path, bytes); !s) return s;
        if (status s = file.write(image.data(), bytes, 0); !s) return s;
        return file.close();
    }

    const staged_file& features_;
    const library_header& h_;
    const lsh_family& family_;
    std::vector<keyed_tile> entries_;
    std::vector<std::uint16_t> read_;
};

// The width at which all but the poorest tenth of the tiles find eight others or more in a bucket
// on average: then blocks unlike most of the library still meet candidates, and most blocks some
// hundred. Found on a sample of the tiles.
status choose_width(const staged_file& tile_features, std::uint64_t tile_count, std::uint64_t seed,
                    std::uint32_t& width) {
    const std::uint64_t sampled = std::min(tile_count, sample_tiles);
    std::vector<std::int32_t> sums(sampled * sample_projections);
    lsh_family family = make_family(seed, 1);
    for (std::uint64_t i = 0; i < sampled; ++i) {
        __extension__ typedef unsigned __int128 wide;
        const auto id = static_cast<std::uint64_t>(wide{i} * tile_count / sampled);
        std::uint16_t values[features];
        if (status s = tile_features.read(values, feature_bytes, id * feature_bytes); !s) return s;
        project<sample_projections>(family.coefficients.data(), values,
                                    &sums[i * sample_projections]);
    }
    const double tiles_each = static_cast<double>(tile_count) / static_cast<double>(sampled);
    // Wider cells make fuller buckets. Halving the span of the exponent twelve times leaves less
    // than the sample can tell.
    double low = 8, high = std::log2(most_width);
    width = most_width;
    for (int step = 0; step < 12; ++step) {
        const double middle = (low + high) / 2;
        const auto candidate = static_cast<std::uint32_t>(std::exp2(middle));
        family = make_family(seed, candidate);
        if (poorest_tenth(sums, sampled, tiles_each, family) < wanted_others) {
            low = middle;
        } else {
            high = middle;
            width = candidate;
        }
    }
    return {};
}

// Writes the files lsh-NN and their numbers of entries into the header, whose other fields are set.
// `done` counts tables.
status build_tables(const staged_file& tile_features, const staging_folder& folder,
                    library_header& header, std::uint32_t threads,
                    std::atomic<std::uint64_t>& done) {
    const lsh_family family = make_family(header.seed, header.width);
    const std::uint64_t each =
        header.tile_count * (sizeof(keyed_tile) + 2 * sizeof(table_entry)) + 1;
    const auto at_once = static_cast<std::uint32_t>(
        std::clamp<std::uint64_t>(most_sorting_bytes / each, 1, std::min(threads, tables)));
    std::atomic<std::uint32_t> next{0};
    apps::first_error errors;
    apps::on_threads(at_once, [&](std::uint32_t) {
        table_builder builder(tile_features, header, family);
        for (std::uint32_t t = next++; t < tables && !errors.stop(); t = next++) {
            errors.note(
                builder.build(t, folder.file(table_name(t)), header.table_entries[t], errors));
            ++done;
        }
    });
    return errors.get();
}

status create_files(const staging_folder& folder, std::uint64_t tiles, tile_files& out) {
    const std::uint64_t histogram_bytes = tiles * record_stride_bytes;
    if (status s = out.histograms.create(folder.file(histograms_name), histogram_bytes); !s)
        return s;
    if (status s = out.tiles.create(folder.file(tiles_name), tiles * tile_bytes); !s) return s;
    return out.features.create(folder.file(features_name), tiles * feature_bytes);
}

// Cuts until a round meets no damaged picture. A damaged one shows only while it is read, when
// later tiles have their numbers already, so the round is done again without it.
status cut_without_damaged(const index_request& asked, found_pictures& found,
                           const staging_folder& folder, tiling& plan, tile_files& files) {
    while (true) {
        if (asked.strict && !found.complaints.empty())
            return {-EBADMSG, found.complaints.front() + "; --strict makes that an error"};
        if (status s = plan_tiles(found.pictures, asked.scales, asked.stride, asked.tiles, plan);
            !s)
            return s;
        tile_files fresh;
        if (status s = create_files(folder, plan.tiles, fresh); !s) return s;
        std::atomic<std::uint64_t> done{0};
        std::map<std::string, std::string> damaged;
        {
            const apps::progress bar(
                "reading pictures", plan.pictures.size(), [&] { return done.load(); },
                !asked.quiet);
            if (status s = cut_tiles(plan, fresh, asked.threads, done, damaged); !s) return s;
        }
        if (damaged.empty()) {
            files = std::move(fresh);
            return {};
        }
        for (const char* const name : {histograms_name, tiles_name, features_name})
            folder.remove(name);
        for (const auto& [path, message] : damaged)
            found.complaints.push_back(message + "; left out");
        std::erase_if(found.pictures,
                      [&](const source_picture& p) { return damaged.contains(p.path); });
        if (found.pictures.empty())
            return {-EBADMSG, found.complaints.front() + ", and no other picture is there"};
    }
}

status write_header(const staging_folder& folder, library_header& h) {
    h.header_bytes = sizeof h;
    h.checksum = checksum_of(h);
    staged_file file;
    if (status s = file.create(folder.file(header_name), 0); !s) return s;
    if (status s = file.write(&h, sizeof h, 0); !s) return s;
    return file.close();
}

status build(const index_request& asked, const tiling& plan, const staging_folder& folder,
             const tile_files& files, index_report& out) {
    apps::stopwatch watch;
    library_header& h = out.made.header;
    h = {};
    h.tile_count = plan.tiles;
    h.seed = asked.seed;
    h.slots = slots_for(plan.tiles);
    h.picture_count = static_cast<std::uint32_t>(plan.pictures.size());
    h.stride_pixels = plan.stride;
    h.scale_count = asked.scales;
    if (status s = choose_width(files.features, plan.tiles, h.seed, h.width); !s) return s;
    out.width_seconds = watch.lap();
    std::atomic<std::uint64_t> done{0};
    const apps::progress bar(
        "building tables", tables, [&] { return done.load(); }, !asked.quiet);
    if (status s = build_tables(files.features, folder, h, asked.threads, done); !s) return s;
    out.table_seconds = watch.lap();
    return write_header(folder, h);
}

}  // namespace

status index_library(const index_request& asked, index_report& out) {
    apps::stopwatch all, watch;
    const double cpu_before = apps::cpu_seconds();
    staging_folder folder;
    if (status s = folder.create(asked.out); !s) return s;
    if (status s = find_pictures(asked.folder, out.found); !s) {
        for (const std::string& complaint : out.found.complaints) apps::say(complaint);
        out.found.complaints.clear();
        return s;
    }
    out.find_seconds = watch.lap();
    tiling plan;
    tile_files files;
    if (status s = cut_without_damaged(asked, out.found, folder, plan, files); !s) return s;
    out.cut_seconds = watch.lap();
    if (status s = build(asked, plan, folder, files, out); !s) return s;
    for (staged_file* const file : {&files.histograms, &files.tiles, &files.features})
        if (status s = file->close(); !s) return s;
    folder.remove(features_name);
    if (status s = folder.commit(); !s) return s;
    out.made.path = asked.out;
    out.total_seconds = all.lap();
    out.cpu_seconds = apps::cpu_seconds() - cpu_before;
    return {};
}

}  // namespace penstock::collage
