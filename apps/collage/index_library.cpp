#include "index_library.hpp"

#include <algorithm>
#include <cerrno>

#include "build_tables.hpp"
#include "common/message.hpp"
#include "common/stopwatch.hpp"
#include "cut_tiles.hpp"
#include "tiling.hpp"
#include "staging_folder.hpp"
#include "common/threads.hpp"

namespace penstock::collage {

namespace {

status create_files(const staging_folder& folder, std::uint64_t tiles, tile_files& out) {
    if (status s = out.histograms.create(folder.file(histograms_name), tiles * record_stride_bytes);
        !s)
        return s;
    if (status s = out.tiles.create(folder.file(tiles_name), tiles * tile_bytes); !s) return s;
    return out.features.create(folder.file("features"), tiles * features * sizeof(std::uint16_t));
}

void remove_files(const staging_folder& folder) {
    for (const char* const name : {histograms_name, tiles_name, "features"}) folder.remove(name);
}

// Cuts until a round meets no damaged picture. A damaged one shows only while it is read, when
// later tiles have their numbers already, so the round is done again without it.
status cut_without_damaged(const index_request& asked, found_pictures& found,
                           const staging_folder& folder, tiling& plan, tile_files& files,
                           index_report& out) {
    while (true) {
        if (asked.strict && !found.complaints.empty())
            return {-EBADMSG, found.complaints.front() + "; --strict makes that an error"};
        if (status s = plan_tiles(found.pictures, asked.scales, asked.stride, asked.tiles, plan);
            !s)
            return s;
        tile_files fresh;
        if (status s = create_files(folder, plan.tiles, fresh); !s) return s;
        std::atomic<std::uint64_t> done{0};
        std::vector<damaged_picture> damaged;
        {
            const apps::progress bar(
                "reading pictures", plan.pictures.size(), [&] { return done.load(); },
                !asked.quiet);
            if (status s = cut_tiles(plan, fresh, asked.threads, done, damaged); !s) return s;
        }
        if (damaged.empty()) {
            files = std::move(fresh);
            out.pictures = plan.pictures.size();
            return {};
        }
        remove_files(folder);
        for (const damaged_picture& one : damaged) {
            found.complaints.push_back(one.message + "; left out");
            const std::string& path = plan.pictures[one.picture].source.path;
            std::erase_if(found.pictures, [&](const source_picture& p) { return p.path == path; });
        }
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
    found_pictures found;
    if (status s = find_pictures(asked.folder, found); !s) {
        for (const std::string& complaint : found.complaints) apps::say(complaint);
        return s;
    }
    out.find_seconds = watch.lap();
    tiling plan;
    tile_files files;
    const status cut = cut_without_damaged(asked, found, folder, plan, files, out);
    out.other_files = found.other_files;
    out.too_small = found.too_small;
    out.left_out = found.complaints;
    if (!cut.ok()) return cut;
    out.cut_seconds = watch.lap();
    if (status s = build(asked, plan, folder, files, out); !s) return s;
    for (staged_file* const file : {&files.histograms, &files.tiles, &files.features})
        if (status s = file->close(); !s) return s;
    folder.remove("features");
    if (status s = folder.commit(); !s) return s;
    out.made.path = asked.out;
    out.total_seconds = all.lap();
    out.cpu_seconds = apps::cpu_seconds() - cpu_before;
    return {};
}

}  // namespace penstock::collage
