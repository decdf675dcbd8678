// What the source files of the sample share.
#pragma once

#define ROW_BYTES 200

__global__ void row_sums(char* rows_name, char* sums_name);
void init_app();
int wrong_totals();
