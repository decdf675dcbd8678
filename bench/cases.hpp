// Cases of penstock bench: their bodies, and the headers that most of them are written with. The
// table that names them is in bench.cpp.
#pragma once

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>

#include "penstock/group/lane.hpp"
#include "workload.hpp"

namespace penstock::bench {

using case_body = void (*)(context& here);

void hit_on_cpu(context& here);
void map_on_cpu(context& here);
void element_on_cpu(context& here);
void gather_on_cpu(context& here);
void table_on_cpu(context& here);
void miss_on_cpu(context& here);
void sequential_on_cpu(context& here);
void merge_on_cpu(context& here);
void evict_on_cpu(context& here);

#if defined(PENSTOCK_WITH_CUDA)
void hit_on_gpu(context& here);
void map_on_gpu(context& here);
void element_on_gpu(context& here);
void iterator_on_gpu(context& here);
void pieces_on_gpu(context& here);
void gather_on_gpu(context& here);
void table_on_gpu(context& here);
void lists_on_gpu(context& here);
void links_on_gpus(context& here);
void links_for_one_reader(context& here);
void processes_on_gpus(context& here);
void tables_on_gpus(context& here);
void region_links(context& here);
void miss_on_gpu(context& here);
void sequential_on_gpu(context& here);
void merge_on_gpu(context& here);
#else
inline constexpr case_body hit_on_gpu = nullptr, map_on_gpu = nullptr, element_on_gpu = nullptr,
                           iterator_on_gpu = nullptr, pieces_on_gpu = nullptr,
                           gather_on_gpu = nullptr, table_on_gpu = nullptr, lists_on_gpu = nullptr,
                           links_on_gpus = nullptr, links_for_one_reader = nullptr,
                           processes_on_gpus = nullptr, tables_on_gpus = nullptr,
                           region_links = nullptr, miss_on_gpu = nullptr,
                           sequential_on_gpu = nullptr, merge_on_gpu = nullptr;
#endif

// The same body on both back ends.
void cold(context& here);
void cold_rows(context& here);
void request_path(context& here);
void write_path(context& here);
void closing_path(context& here);
void append_path(context& here);
void fsync_path(context& here);
void acquire_path(context& here);
void region_cache(context& here);
void region_cold(context& here);
void in_place_path(context& here);
void sharing(context& here);
void peer(context& here);
void mount_case(context& here);
void signature_speed(context& here);
void exchange_path(context& here);
void buffer_path(context& here);
// Simulations, on the CPU in both.
void policy_case(context& here);
void admission_case(context& here);
void neighbours_case(context& here);
void versions_case(context& here);

}  // namespace penstock::bench
