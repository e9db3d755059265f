import { configureStore, createAsyncThunk, createSlice } from "@reduxjs/toolkit";

export const loadBirds = createAsyncThunk("birds/load", async () => (await fetch("/api/birds")).json());

const birds = createSlice({
  name: "birds",
  initialState: { status: "Loading", birds: [] },
  reducers: {},
  extraReducers: (builder) => builder.addCase(loadBirds.fulfilled, (state, { payload }) => {
    state.status = `${payload.length} of them`;
    state.birds = payload;
  }),
});

export const store = configureStore({ reducer: { birds: birds.reducer } });
